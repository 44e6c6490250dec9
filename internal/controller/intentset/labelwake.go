/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/index"
)

func (l *Labeller) register(mgr manager.Manager) error {
	mapped := handler.EnqueueRequestsFromMapFunc
	return ctrl.NewControllerManagedBy(mgr).
		Named("intentset-labels").
		For(&corev1.Node{}, builder.WithPredicates(labelsChanged)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, mapped(nodeOfIntent), builder.WithPredicates(readinessChanged)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntentSet{}, mapped(l.nodesOfSet), builder.WithPredicates(selectionChanged)).
		WatchesRawSource(l.takes(&l.nodes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: Workers, RateLimiter: backoff.Limiter()}).
		Complete(l)
}

// takes keeps the queue of a controller.
func (l *Labeller) takes(place *queue) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		*place = q
		return nil
	})
}

var labelsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}}

func nodeOfIntent(_ context.Context, o client.Object) []reconcile.Request {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if index.SetOf(intent) == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: intent.Spec.NodeName}}}
}

var readinessChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return stateChanged(e.ObjectOld, e.ObjectNew)
}}

// selectionChanged ignores updates of the status.
var selectionChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld, e.ObjectNew
	return was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration() ||
		was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
}}

// nodesOfSet are the Nodes that have an intent of the set or its label.
func (l *Labeller) nodesOfSet(ctx context.Context, set client.Object) []reconcile.Request {
	names := sets.New[string]()
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := l.Client.List(ctx, intents,
		client.MatchingFields{index.Set: index.SetKey(set.GetNamespace(), set.GetName())}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the intents of a set", "set", client.ObjectKeyFromObject(set))
	}
	for i := range intents.Items {
		names.Insert(intents.Items[i].Spec.NodeName)
	}
	nodes := &corev1.NodeList{}
	if err := l.Client.List(ctx, nodes); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the Nodes with the label of a set", "set", client.ObjectKeyFromObject(set))
	}
	key := labelKey(client.ObjectKeyFromObject(set))
	for i := range nodes.Items {
		if _, has := nodes.Items[i].Labels[key]; has {
			names.Insert(nodes.Items[i].Name)
		}
	}
	var requests []reconcile.Request
	for name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return requests
}
