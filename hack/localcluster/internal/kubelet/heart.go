/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/hack/localcluster/internal/worker"
)

// The intervals of a kubelet's defaults.
const (
	leaseSeconds  = 40
	renewInterval = 10 * time.Second
	// reportPeriod is how often the Node is written without a change. Upstream's attach/detach controller reads a Node
	// only when it changes, so it reads it then.
	reportPeriod = 5 * time.Minute
)

// heart renews the node's Lease and keeps the Node Ready, unless the node must be silent.
type heart struct {
	*Kubelet
	nodes  cache.SharedIndexInformer
	queue  worker.Queue
	silent atomic.Bool
}

func newHeart(k *Kubelet, nodes coreinformers.NodeInformer) *heart {
	h := &heart{Kubelet: k, nodes: nodes.Informer(), queue: worker.NewQueue(10 * time.Second)}
	enqueue := func(any) { h.queue.Add(k.Node) }
	// The registration of the handler fails only on a stopped informer.
	_, _ = h.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, node any) { enqueue(node) },
	})
	return h
}

func (h *heart) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { worker.Run(ctx, h.Log, h.queue, 1, h.keepReady) })
	group.Go(func() { h.beat(ctx) })
	group.Wait()
}

// keepReady reports the node as Ready whenever the API has another status: after the start, and after another component
// marked the node as not Ready.
func (h *heart) keepReady(ctx context.Context, name string) error {
	stored, found, err := h.nodes.GetStore().GetByKey(name)
	if err != nil || !found || h.silent.Load() || isReady(stored.(*corev1.Node)) {
		return err
	}
	err = h.reportReady(ctx)
	if apierrors.IsNotFound(err) {
		return nil // deleted: like a kubelet, it registers again only at the next start
	}
	return err
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// beat renews the lease while the node is not silent. It watches the silence file.
func (h *heart) beat(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		err = watcher.Add(filepath.Dir(h.Silence))
	}
	if err != nil {
		h.Log.Error("cannot watch for silence; the heart only beats", "error", err)
		h.renew(ctx)
		return
	}
	var stop func() // nil while the node is silent
	for {
		_, err := os.Stat(h.Silence)
		silent := err == nil
		h.silent.Store(silent)
		switch {
		case silent && stop != nil:
			stop()
			stop = nil
			h.Log.Info("the node falls silent")
		case !silent && stop == nil:
			stop = h.startRenewing(ctx)
			h.queue.Add(h.Node)
		}
		if !waitFor(ctx, watcher, h.Silence) {
			if stop != nil {
				stop()
			}
			return
		}
	}
}

// startRenewing renews in the background and returns the function that stops it and waits.
func (h *heart) startRenewing(ctx context.Context) func() {
	renewing, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { h.renew(renewing) })
	group.Go(func() {
		_ = wait.PollUntilContextCancel(renewing, reportPeriod, false, func(ctx context.Context) (bool, error) {
			if err := h.reportBeat(ctx); err != nil && ctx.Err() == nil {
				h.Log.Error("the node's status is not reported", "error", err)
			}
			return false, nil
		})
	})
	return func() { cancel(); group.Wait() }
}

// waitFor returns true after a possible change of the path, and false at the end.
func waitFor(ctx context.Context, watcher *fsnotify.Watcher, path string) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case event, open := <-watcher.Events:
			if !open {
				return false
			}
			if event.Name == path {
				return true
			}
		case _, open := <-watcher.Errors:
			return open // events may be lost, so check the file again
		}
	}
}

// renew renews the node's Lease, owned by the Node, until the context ends.
func (h *heart) renew(ctx context.Context) {
	own := func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node, err := h.Client.CoreV1().Nodes().Get(ctx, h.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.OwnerReferences = []metav1.OwnerReference{owner(node)}
		return nil
	}
	lease.NewController(clock.RealClock{}, h.Client, h.Node, leaseSeconds, nil, renewInterval,
		h.Node, corev1.NamespaceNodeLease, own).Run(ctx)
}
