/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// inSlot runs work in a slot of s and says whether it ran.
func inSlot(ctx context.Context, s *Slots, work func(context.Context)) bool {
	return s.Do(ctx, func(ctx context.Context) error { work(ctx); return nil }) == nil
}

func TestNoMoreWorkGoesOnThanThereAreSlots(t *testing.T) {
	s := New(1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	inSlot(t.Context(), s, func(context.Context) {
		if inSlot(ended, s, func(context.Context) {}) {
			t.Error("work began without a slot")
		}
	})
	if !inSlot(t.Context(), s, func(context.Context) {}) {
		t.Error("the slot was not given back")
	}
}

func TestWhoWaitsLendsItsSlotAndTakesOneAfterwards(t *testing.T) {
	s := New(1)
	inSlot(t.Context(), s, func(ctx context.Context) {
		// It would never end if the slot were kept.
		Lend(ctx, func() { inSlot(t.Context(), s, func(context.Context) {}) })
		select {
		case s.taken <- struct{}{}:
			t.Error("work goes on without a slot")
		default:
		}
	})
	if len(s.taken) != 0 {
		t.Error("the slot was not given back")
	}
}

func TestAFailureOfTheWorkIsToldAndGivesTheSlotBack(t *testing.T) {
	s, failure := New(1), errors.New("failed")
	if err := s.Do(t.Context(), func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	s.Take()()
}

func TestWithoutSlotsNothingIsBounded(t *testing.T) {
	var none *Slots
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
