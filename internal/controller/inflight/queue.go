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

// ahead is how many objects a controller takes from its queue before there is a slot for them: enough that no slot is
// free while an object waits.
const ahead = 16

// Queue of a controller with many workers. An object stays in it until a slot is near: what happens to the object until
// then takes one pass, where an object that a worker holds already would need another.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	slots *Limiter
	lanes lanes
	// taken are the objects that left the queue and have no slot yet.
	taken chan struct{}
}

// Queue makes a queue for work in the slots.
func (s *Limiter) Queue() *Queue { return &Queue{slots: s, taken: make(chan struct{}, ahead)} }

// New is the controller's NewQueue. It is not controller-runtime's priority queue: whenever a key comes, that visits
// every key that waits for its own pass to end, which with so many workers are many.
func (q *Queue) New(
	controller string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	named := workqueue.TypedQueueConfig[reconcile.Request]{Name: controller, Queue: &q.lanes}
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
				Name: controller, Queue: workqueue.NewTypedWithConfig(named),
			})})
	return q
}

// Later is the same queue. What is added to it comes after everything else, unless it is also added to q itself, before
// or after that.
func (q *Queue) Later() workqueue.TypedRateLimitingInterface[reconcile.Request] { return later{q} }

type later struct{ *Queue }

func (l later) Add(req reconcile.Request) {
	l.lanes.delay(req)
	l.TypedRateLimitingInterface.Add(req)
}

// Add an object, also where it was added for later while it is at work.
func (q *Queue) Add(req reconcile.Request) {
	q.lanes.hurry(req)
	q.TypedRateLimitingInterface.Add(req)
}

// Get waits until a slot is near, and for an object.
func (q *Queue) Get() (reconcile.Request, bool) {
	q.taken <- struct{}{}
	req, shutdown := q.TypedRateLimitingInterface.Get()
	if shutdown {
		<-q.taken
	}
	return req, shutdown
}

// Reconciler reconciles as r does, in slots.
func (q *Queue) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
		begin := sync.OnceFunc(func() { <-q.taken })
		defer begin() // the context may end before there is a slot
		err = q.slots.Do(ctx, func(ctx context.Context) (err error) {
			begin()
			result, err = r.Reconcile(ctx, req)
			return err
		})
		return result, err
	})
}
