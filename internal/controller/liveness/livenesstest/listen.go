/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package livenesstest has a tracker of a test hear the agents.
package livenesstest

import (
	"context"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/install"
)

// Listen has the tracker watch the Leases of the client until the test ends. They are watched when it returns.
func Listen(t *testing.T, tracker *liveness.Tracker, leases client.WithWatch) {
	t.Helper()
	begun := make(chan watch.Interface)
	watching := interceptor.NewClient(leases, interceptor.Funcs{
		Watch: func(
			ctx context.Context, w client.WithWatch, l client.ObjectList, o ...client.ListOption,
		) (watch.Interface, error) {
			watcher, err := w.Watch(ctx, l, o...)
			begun <- watcher
			return watcher, err
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&liveness.Listener{Tracker: tracker, Client: watching}).Start(ctx) }()
	watcher := <-begun
	t.Cleanup(func() {
		stop()
		watcher.Stop()
		if err := <-ended; err != nil {
			t.Errorf("listening to the agents: error %v, want none", err)
		}
	})
}

// Restore has the tracker watch the Leases, and hear that the agent of the node reports that restore of the API server.
func Restore(t *testing.T, tracker *liveness.Tracker, leases client.WithWatch, node string, restore types.UID) {
	t.Helper()
	Listen(t, tracker, leases)
	heard := make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(heard) })
	wake := func(_ context.Context, woken string, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if woken == node {
			closeOnce()
		}
	}
	if err := tracker.Listen(wake).Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	renewed := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + node,
		Annotations: map[string]string{
			volumesv1alpha1.LeaseRestoredAnnotation: "true", volumesv1alpha1.LeaseRestoreIDAnnotation: string(restore),
		}}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	if err := leases.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	<-heard
}
