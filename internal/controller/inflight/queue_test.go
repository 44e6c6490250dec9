/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func object(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// started is a queue for work in the slots, which its workers take one object ahead of.
func started(t *testing.T, s *Limiter) *Queue {
	t.Helper()
	q := s.Queue()
	q.taken = make(chan struct{}, 1)
	q.New("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// work reconciles what comes out of the queue, as controller-runtime does, until it is shut down.
func (q *Queue) work(ctx context.Context, r reconcile.Reconciler) {
	for {
		req, shutdown := q.Get()
		if shutdown {
			return
		}
		_, _ = r.Reconcile(ctx, req)
		q.Done(req)
	}
}

func TestAnObjectThatChangesOftenWhileItWaitsIsReconciledOnce(t *testing.T) {
	synctest.Test(t, addWhileOneWaits)
}

func addWhileOneWaits(t *testing.T) {
	const workers = 8
	s := New(1)
	q := started(t, s)
	seen := make(chan string, 100)
	r := q.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		seen <- req.Name
		return reconcile.Result{}, nil
	}))
	leave := s.Take()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { q.work(t.Context(), r) })
	}
	q.Add(object("first"))
	synctest.Wait()
	if n := q.Len(); n != 0 {
		t.Errorf("%d objects are left in the queue, want 0: a worker takes the first and waits for a slot", n)
	}
	for range 3 {
		q.Add(object("often"))
		q.Add(object("last"))
	}
	if q.Len() != 2 {
		t.Errorf("%d objects are left in the queue while there is no slot, want 2", q.Len())
	}
	leave()
	got := []string{<-seen, <-seen, <-seen}
	q.ShutDown()
	all.Wait()
	if !slices.Equal(got, []string{"first", "often", "last"}) || len(seen) > 0 {
		t.Errorf("reconciled objects: %q and %d more; want first, often and last, once each", got, len(seen))
	}
}

func TestAReconcilerHoldsASlot(t *testing.T) {
	s, failure := New(1), errors.New("failed")
	q := started(t, s)
	r := q.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		if s.free != 0 {
			t.Errorf("%s is reconciled with %d slots free of 1, want it to hold the slot", req.Name, s.free)
		}
		if req.Name == "fails" {
			return reconcile.Result{}, failure
		}
		return reconcile.Result{RequeueAfter: time.Minute}, nil
	}))
	for name, want := range map[string]error{"works": nil, "fails": failure} {
		q.Add(object(name))
		req, _ := q.Get()
		result, err := r.Reconcile(t.Context(), req)
		if !errors.Is(err, want) || want == nil && result.RequeueAfter != time.Minute {
			t.Errorf("reconciling %s: %v, error %v; want error %v, or a requeue after 1m", name, result, err, want)
		}
		q.Done(req)
	}
	if s.free != 1 {
		t.Errorf("%d slots free after the reconciles, want 1", s.free)
	}
}

func TestWorkThatGetsNoSlotLeavesTheQueueAsItWas(t *testing.T) {
	s := New(1)
	q := started(t, s)
	defer s.Take()()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := q.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		t.Error("work began without a slot, want none")
		return reconcile.Result{}, nil
	}))
	for _, name := range []string{"a", "b"} {
		q.Add(object(name))
		req, _ := q.Get()
		if _, err := r.Reconcile(ended, req); err == nil {
			t.Errorf("reconciling %s without a slot: error %v, want one", name, err)
		}
		q.Done(req)
	}
}
