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
	"time"
)

// inSlot runs work in a slot of s and reports whether it ran.
func inSlot(ctx context.Context, s *Limiter, work func(context.Context)) bool {
	return s.Do(ctx, func(ctx context.Context) error { work(ctx); return nil }) == nil
}

func TestNoMoreWorkRunsThanThereAreSlots(t *testing.T) {
	s := New(1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	inSlot(t.Context(), s, func(context.Context) {
		if inSlot(ended, s, func(context.Context) {}) {
			t.Error("work began without a slot, want it to wait for the only one")
		}
	})
	if !inSlot(t.Context(), s, func(context.Context) {}) {
		t.Error("the only slot was not given back after the work, want it free")
	}
}

func TestWaitingWorkLendsItsSlotAndTakesOneAfterwards(t *testing.T) {
	s := New(1)
	inSlot(t.Context(), s, func(ctx context.Context) {
		// It would never end if the slot were kept.
		Lend(ctx, func() { inSlot(t.Context(), s, func(context.Context) {}) })
		if s.free != 0 {
			t.Errorf("work continues with %d slots free of 1, want it to hold the slot again", s.free)
		}
	})
	if s.free != 1 {
		t.Errorf("%d slots free after the work, want 1", s.free)
	}
}

func TestAFailureOfTheWorkIsReturnedAndReleasesTheSlot(t *testing.T) {
	s, failure := New(1), errors.New("failed")
	if err := s.Do(t.Context(), func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error of the work: %v, want %v", err, failure)
	}
	s.Take()()
}

func TestWithoutSlotsNothingIsBounded(t *testing.T) {
	var none *Limiter
	var all, both sync.WaitGroup
	both.Add(2)
	for range 2 {
		all.Go(func() {
			inSlot(t.Context(), none, func(ctx context.Context) {
				defer none.Take()()
				Lend(ctx, func() { both.Done(); both.Wait() })
			})
		})
	}
	all.Wait()
}

// order asks for the only slot in this order and returns in which order it is given.
func order(s *Limiter, asked ...rank) []rank {
	leave := s.Take()
	given := make(chan rank)
	var all sync.WaitGroup
	for i, r := range asked {
		w := s.ask(r)
		if i == 0 && r == shared {
			w.since = w.since.Add(-time.Minute)
		}
		all.Go(func() {
			<-w.granted
			given <- r
			s.leave()
		})
	}
	leave()
	var got []rank
	for range asked {
		got = append(got, <-given)
	}
	all.Wait()
	return got
}

func TestContinuedWorkIsFirstAndSharedWorkLast(t *testing.T) {
	s := New(1)
	s.patience = time.Hour
	if got := order(s, shared, beginning, goingOn, beginning); !slices.Equal(got,
		[]rank{goingOn, beginning, beginning, shared}) {
		t.Errorf("order of the ranks: %v, want what continues, what begins, then what is shared", got)
	}
}

func TestWhatIsSharedDoesNotWaitForever(t *testing.T) {
	s := New(1)
	s.patience = time.Second
	if got := order(s, shared, beginning, goingOn, shared); !slices.Equal(got,
		[]rank{goingOn, shared, beginning, shared}) {
		t.Errorf("order of the ranks: %v, want what is shared before what begins, once it waited for its patience", got)
	}
}

func TestWhatIsSharedLeavesHalfOfTheSlotsToWork(t *testing.T) {
	s := New(4)
	s.patience = time.Hour
	first, second := s.Take(), s.Take()
	third := s.ask(shared)
	select {
	case <-third.granted:
		t.Error("third shared work was granted a slot of 4, want it to wait while half of them are shared")
	default:
	}
	if !inSlot(t.Context(), s, func(context.Context) {}) {
		t.Error("work gets no slot while half of 4 are shared, want one")
	}
	first()
	<-third.granted
	second()
	s.leave()
	if s.free != 4 {
		t.Errorf("%d slots free after the work, want 4", s.free)
	}
}

func TestWhatHasWaitedForLongTakesTheLastSlotByItself(t *testing.T) {
	s := New(2)
	s.patience = time.Millisecond
	leave := s.Take()
	s.Take()()
	leave()
	if s.free != 2 {
		t.Errorf("%d slots free after the work, want 2", s.free)
	}
}

func TestACancelledWaitLeavesItsTurnToTheNext(t *testing.T) {
	s := New(1)
	leave := s.Take()
	ctx, giveUp := context.WithCancel(t.Context())
	given := make(chan error)
	go func() { given <- s.Do(ctx, func(context.Context) error { return nil }) }()
	giveUp()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("error of a canceled wait: %v, want %v", err, context.Canceled)
	}
	leave()
	if !inSlot(t.Context(), s, func(context.Context) {}) || s.free != 1 {
		t.Errorf("%d slots free of 1 after a wait was canceled, want the slot given to the next work and back", s.free)
	}
}
