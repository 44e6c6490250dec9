/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package livenesstest has a tracker of a test hear the agents.
package livenesstest

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hawser-io/hawser/internal/controller/liveness"
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
