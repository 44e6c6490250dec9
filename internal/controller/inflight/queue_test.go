/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func object(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func TestAReconcilerHoldsASlot(t *testing.T) {
	s, failure := New(1), errors.New("failed")
	r := s.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		if s.free != 0 {
			t.Errorf("%s is reconciled with %d slots free of 1, want it to hold the slot", req.Name, s.free)
		}
		if req.Name == "fails" {
			return reconcile.Result{}, failure
		}
		return reconcile.Result{RequeueAfter: time.Minute}, nil
	}))
	for name, want := range map[string]error{"works": nil, "fails": failure} {
		result, err := r.Reconcile(t.Context(), object(name))
		if !errors.Is(err, want) || want == nil && result.RequeueAfter != time.Minute {
			t.Errorf("reconciling %s: %v, error %v; want error %v, or a requeue after 1m", name, result, err, want)
		}
	}
	if s.free != 1 {
		t.Errorf("%d slots free after the reconciles, want 1", s.free)
	}
}

func TestAReconcilerThatGetsNoSlotFails(t *testing.T) {
	s := New(1)
	defer s.Take()()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := s.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		t.Error("work began without a slot, want none")
		return reconcile.Result{}, nil
	}))
	if _, err := r.Reconcile(ended, object("a")); err == nil {
		t.Errorf("reconciling a without a slot: error %v, want one", err)
	}
}
