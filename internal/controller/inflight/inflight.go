/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package inflight bounds how much is under way at once, but not how much may wait: who waits for a write that is shared with others
// gives its slot back meanwhile. A worker that kept it would keep out those who could share the write.
package inflight

import (
	"context"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// patience is how long what is shared lets work go first.
const patience = 10 * time.Second

// Slots for work and for what is shared by it. Work that goes on comes before work that begins, and what is shared comes after both, unless
// it has waited for long: the later it goes, the more share it. Nil are without bound.
type Slots struct {
	patience time.Duration

	mu   sync.Mutex
	free int
	// waiting while none is free, by rank, each in order of asking.
	waiting [ranks][]*waiter
}

// rank of who asks: lower ones go first.
type rank int

const (
	goingOn rank = iota
	beginning
	shared
	ranks
)

type waiter struct {
	since time.Time
	// granted is closed when the slot is the waiter's.
	granted chan struct{}
}

// New makes n slots.
func New(n int) *Slots { return &Slots{patience: patience, free: n} }

// holding is the key under which a context carries the slots of which its work holds one.
type holding struct{}

// Do runs work while it holds a slot, unless ctx ends before there is one.
func (s *Slots) Do(ctx context.Context, work func(context.Context) error) error {
	if s == nil {
		return work(ctx)
	}
	if err := s.enter(ctx, beginning); err != nil {
		return err
	}
	defer s.leave()
	return work(context.WithValue(ctx, holding{}, s))
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

// Take a slot, which leave gives back, for what is shared.
func (s *Slots) Take() (leave func()) {
	if s == nil {
		return func() {}
	}
	_ = s.enter(context.Background(), shared) // it does not end
	return s.leave
}

// Lend gives the slot that ctx's work holds, if it holds one, back while wait runs, and takes another one after it.
func Lend(ctx context.Context, wait func()) {
	if s, ok := ctx.Value(holding{}).(*Slots); ok {
		s.leave()
		defer func() { _ = s.enter(context.Background(), goingOn) }() // it does not end
	}
	wait()
}

// Await lends the slot until done is closed, or ctx ends, which is the error.
func Await(ctx context.Context, done <-chan struct{}) (err error) {
	Lend(ctx, func() {
		select {
		case <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return err
}

// enter takes a slot, or waits for one until ctx ends.
func (s *Slots) enter(ctx context.Context, r rank) error {
	w := s.ask(r)
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	if !s.withdraw(r, w) {
		s.leave()
	}
	return ctx.Err()
}

func (s *Slots) ask(r rank) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{since: time.Now(), granted: make(chan struct{})}
	if s.free > 0 {
		s.free--
		close(w.granted)
		return w
	}
	s.waiting[r] = append(s.waiting[r], w)
	return w
}

// withdraw says whether w still waited.
func (s *Slots) withdraw(r rank, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting[r], w)
	if i >= 0 {
		s.waiting[r] = slices.Delete(s.waiting[r], i, i+1)
	}
	return i >= 0
}

// leave passes the slot on to the next one, or frees it.
func (s *Slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.next()
	if !ok {
		s.free++
		return
	}
	close(s.waiting[r][0].granted)
	s.waiting[r] = s.waiting[r][1:]
}

// next is the rank whose turn it is.
func (s *Slots) next() (rank, bool) {
	if w := s.waiting[shared]; len(w) > 0 && time.Since(w[0].since) > s.patience {
		return shared, true
	}
	for r := range s.waiting {
		if len(s.waiting[r]) > 0 {
			return rank(r), true
		}
	}
	return 0, false
}
