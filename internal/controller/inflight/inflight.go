/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package inflight bounds how much is under way at once, but not how much may wait: work that waits for a write that is
// shared with others gives its slot back meanwhile. A worker that kept it would keep out those that could share the
// write.
package inflight

import (
	"context"
	"slices"
	"sync"
	"time"
)

// patience is how long what is shared lets work begin before it.
const patience = 10 * time.Second

// Limiter bounds how much work runs at once, and with it what that work shares. Work that goes on comes before work
// that begins: what it has read gets old. What is shared comes after both and leaves half of the slots free: the later
// it goes, the more share it, and what is at work may be about to. Once it has waited for long it comes before what
// begins. A nil Limiter has no bound.
type Limiter struct {
	patience time.Duration

	// kept free of what is shared.
	kept int

	mu   sync.Mutex
	free int
	// waiting while none is free for them, by rank, each in order of asking.
	waiting [ranks][]*waiter
}

// rank of the request: lower ones go first.
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
func New(n int) *Limiter { return &Limiter{patience: patience, kept: n / 2, free: n} }

// holding is the key of the slots in a context; its work holds one of them.
type holding struct{}

// Do runs work while it holds a slot, unless ctx ends before there is one.
func (s *Limiter) Do(ctx context.Context, work func(context.Context) error) error {
	if s == nil {
		return work(ctx)
	}
	w := s.ask(beginning)
	select {
	case <-w.granted:
	case <-ctx.Done():
		s.withdraw(beginning, w)
		return ctx.Err()
	}
	defer s.leave()
	return work(context.WithValue(ctx, holding{}, s))
}

// Take a slot, which leave gives back, for what is shared.
func (s *Limiter) Take() (leave func()) {
	if s == nil {
		return func() {}
	}
	<-s.ask(shared).granted
	return s.leave
}

// Lend gives the slot that ctx's work holds, if it holds one, back while wait runs, and takes another one after it.
func Lend(ctx context.Context, wait func()) {
	if s, ok := ctx.Value(holding{}).(*Limiter); ok {
		s.leave()
		defer func() { <-s.ask(goingOn).granted }()
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

// ask for a slot, whose granted is closed once it is the waiter's.
func (s *Limiter) ask(r rank) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{since: time.Now(), granted: make(chan struct{})}
	s.waiting[r] = append(s.waiting[r], w)
	s.grant()
	if r == shared && len(s.waiting[r]) > 0 {
		time.AfterFunc(s.patience, s.review)
	}
	return w
}

// withdraw what was asked for; a slot that was granted meanwhile goes to the next one.
func (s *Limiter) withdraw(r rank, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting[r], w); i >= 0 {
		s.waiting[r] = slices.Delete(s.waiting[r], i, i+1)
		return
	}
	s.free++
	s.grant()
}

// review what has waited for long.
func (s *Limiter) review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant()
}

func (s *Limiter) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.grant()
}

// grant the slots that are free to those whose turn it is.
func (s *Limiter) grant() {
	for r, ok := s.next(); ok; r, ok = s.next() {
		s.free--
		close(s.waiting[r][0].granted)
		s.waiting[r] = s.waiting[r][1:]
	}
}

// next is the rank whose turn it is, if a slot is free for it.
func (s *Limiter) next() (rank, bool) {
	waits := func(r rank) bool { return len(s.waiting[r]) > 0 }
	switch {
	case s.free == 0:
		return 0, false
	case waits(goingOn):
		return goingOn, true
	case waits(shared) && time.Since(s.waiting[shared][0].since) >= s.patience:
		return shared, true
	case waits(beginning):
		return beginning, true
	}
	return shared, waits(shared) && s.free > s.kept
}
