/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewQueue is the NewQueue of a controller with many workers. It is not controller-runtime's priority queue: whenever a
// key comes, that visits every key that waits for its own pass to end, which with so many workers are many.
func NewQueue(
	controller string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller})
}

// Reconciler reconciles as r does, in slots.
func (s *Slots) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
		err = s.Do(ctx, func(ctx context.Context) (err error) {
			result, err = r.Reconcile(ctx, req)
			return err
		})
		return result, err
	})
}
