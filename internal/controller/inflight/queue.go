/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ahead is how many objects a controller takes from its queue before there is a slot for them: enough that no slot
// has to wait.
const ahead = 16

// Queue of a controller whose work needs slots. An object stays in it until a slot is near. So whatever happens to it
// meanwhile is reconciled together; and those of one group can come one after another, so that they share what they
// write.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	slots *Slots
	turns *turns
	// begin holds the worker that takes an object until there is a slot for it.
	begin chan struct{}
}

// Queue makes a queue for work in the slots.
func (s *Slots) Queue() *Queue {
	return &Queue{slots: s, turns: newTurns(), begin: make(chan struct{}, ahead)}
}

// New is the controller's NewQueue.
func (q *Queue) New(
	controller string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	objects := workqueue.NewTypedWithConfig(
		workqueue.TypedQueueConfig[reconcile.Request]{Name: controller, Queue: q.turns},
	)
	later := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: controller, Queue: objects},
	)
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller, DelayingQueue: later})
	return q
}

// Join says of an object that is about to be added which group it is best reconciled with.
func (q *Queue) Join(group string, req reconcile.Request) { q.turns.join(group, req) }

// Get waits until a slot is near, and for an object.
func (q *Queue) Get() (reconcile.Request, bool) {
	q.begin <- struct{}{}
	req, shutdown := q.TypedRateLimitingInterface.Get()
	if shutdown {
		<-q.begin
	}
	return req, shutdown
}

// Reconciler reconciles as r does, in slots.
func (q *Queue) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
		begun := sync.OnceFunc(func() { <-q.begin })
		defer begun() // it may never get a slot
		err = q.slots.Do(ctx, func(ctx context.Context) (err error) {
			begun()
			result, err = r.Reconcile(ctx, req)
			return err
		})
		return result, err
	})
}
