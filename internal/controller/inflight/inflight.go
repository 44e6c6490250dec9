/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package inflight bounds how much is under way at once, but not how much may wait: who waits for a write that is shared with others
// gives its slot back meanwhile. A worker that kept it would keep out those who could share the write.
package inflight

import "context"

// Slots in order of asking. Nil are without bound.
type Slots struct {
	taken chan struct{}
}

// New makes n slots.
func New(n int) *Slots { return &Slots{taken: make(chan struct{}, n)} }

// holding is the key under which a context carries the slots of which its work holds one.
type holding struct{}

// Do runs work while it holds a slot, unless ctx ends before there is one.
func (s *Slots) Do(ctx context.Context, work func(context.Context) error) error {
	if s == nil {
		return work(ctx)
	}
	select {
	case s.taken <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer s.leave()
	return work(context.WithValue(ctx, holding{}, s))
}

// Take a slot, which leave gives back.
func (s *Slots) Take() (leave func()) {
	if s == nil {
		return func() {}
	}
	s.enter()
	return s.leave
}

// Lend gives the slot that ctx's work holds, if it holds one, back while wait runs, and takes another one after it.
func Lend(ctx context.Context, wait func()) {
	if s, ok := ctx.Value(holding{}).(*Slots); ok {
		s.leave()
		defer s.enter()
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

func (s *Slots) enter() { s.taken <- struct{}{} }

func (s *Slots) leave() { <-s.taken }
