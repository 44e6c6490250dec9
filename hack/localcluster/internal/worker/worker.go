/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package worker runs a reconcile function over the keys of a work queue.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Queue contains keys that wait to be reconciled.
type Queue = workqueue.TypedRateLimitingInterface[string]

// NewQueue creates a queue that retries a failed key after 100 ms, and doubles that time up to the limit.
func NewQueue(limit time.Duration) Queue {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, limit))
}

// Run works on the queue until the context ends, and returns once all workers have ended. A failed key is
// retried later.
func Run(ctx context.Context, log *slog.Logger, queue Queue, workers int,
	reconcile func(context.Context, string) error) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()

	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				if err := reconcile(ctx, key); err != nil {
					log.Error("failed, will try again", "key", key, "attempts", queue.NumRequeues(key)+1, "error", err)
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				queue.Done(key)
			}
		})
	}
	group.Wait()
}
