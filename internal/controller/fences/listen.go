/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hawser-io/hawser/internal/fencing"
)

// listener is woken for a Node of which a fence comes to hold, or is lifted.
type listener struct {
	wake func(ctx context.Context, node string)
	// cuts: only for fences that cut access.
	cuts bool
}

// Listen has wake called for each Node of which a fence comes to hold, or is lifted.
func (w *Watcher) Listen(
	wake func(ctx context.Context, node string, q workqueue.TypedRateLimitingInterface[reconcile.Request]),
) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.listeners = append(w.listeners, listener{wake: func(ctx context.Context, node string) { wake(ctx, node, q) }})
		return nil
	})
}

// ListenToCuts has wake called for each Node of which access that is cut may have changed.
func (w *Watcher) ListenToCuts(
	wake func(ctx context.Context, node string, q workqueue.TypedRateLimitingInterface[reconcile.Request]),
) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.listeners = append(w.listeners, listener{
			wake: func(ctx context.Context, node string) { wake(ctx, node, q) }, cuts: true,
		})
		return nil
	})
}

func (w *Watcher) wake(ctx context.Context, of fencing.Verdict) {
	names := []string{of.NodeName}
	if of.ProviderID != "" {
		nodes := &corev1.NodeList{}
		if err := w.Cache.List(ctx, nodes); err != nil {
			ctrl.Log.WithName("fences").Error(err, "listing Nodes for a fence", "providerID", of.ProviderID)
		}
		for i := range nodes.Items {
			if nodes.Items[i].Spec.ProviderID == of.ProviderID {
				names = append(names, nodes.Items[i].Name)
			}
		}
	}
	w.notify(ctx, false, names...)
}

// notify the listeners of the Nodes.
func (w *Watcher) notify(ctx context.Context, cut bool, nodes ...string) {
	w.mu.Lock()
	listeners := slices.Clone(w.listeners)
	w.mu.Unlock()
	for _, name := range nodes {
		for _, l := range listeners {
			if name != "" && (cut || !l.cuts) {
				l.wake(ctx, name)
			}
		}
	}
}
