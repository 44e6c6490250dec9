/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestItemsDuringACommitJoinTheNextOne(t *testing.T) {
	committing, goOn := make(chan struct{}), make(chan struct{})
	var groups [][]int
	l := lane[int]{commit: func(_ context.Context, group []int) error {
		groups = append(groups, slices.Sorted(slices.Values(group)))
		committing <- struct{}{}
		<-goOn
		return errors.ErrUnsupported
	}}
	waiting := []<-chan error{l.join(t.Context(), 1)}
	<-committing
	waiting = append(waiting, l.join(t.Context(), 2), l.join(t.Context(), 3))
	goOn <- struct{}{}
	<-committing
	goOn <- struct{}{}
	for i, done := range waiting {
		if err := <-done; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("item %d: error %v, want %v", i+1, err, errors.ErrUnsupported)
		}
	}
	if !slices.EqualFunc(groups, [][]int{{1}, {2, 3}}, slices.Equal) {
		t.Errorf("commits: %v, want item 1 alone, then 2 and 3", groups)
	}
}

func TestAnAnswerBeforeTheAwaitIsNotMissed(t *testing.T) {
	l := newLatest[int]()
	seven := 7
	l.set(&seven)
	got, err := l.await(t.Context(), func(i *int) bool { return i != nil && *i == 7 })
	if err != nil || *got != 7 {
		t.Errorf("awaited answer: %v, error %v; want 7", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.await(ctx, func(i *int) bool { return i == nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("awaiting what never comes with an ended context: error %v, want %v", err, context.Canceled)
	}
}
