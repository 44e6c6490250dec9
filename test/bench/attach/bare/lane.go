/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"sync"

	"github.com/hawser-io/hawser/internal/controller/batch"
)

// lane runs one commit at a time, which uses a slot. Items that arrive while it waits for the slot join it. Items that
// arrive later join the next commit.
type lane[T any] struct {
	commit  func(context.Context, []T) error
	batches batch.Batches[waiter[T]]
}

type waiter[T any] struct {
	item T
	done chan error
}

// add returns once item was committed.
func (l *lane[T]) add(ctx context.Context, item T) error { return <-l.join(ctx, item) }

// join adds item to the next commit. The channel receives the result of that commit.
func (l *lane[T]) join(ctx context.Context, item T) <-chan error {
	w := waiter[T]{item: item, done: make(chan error, 1)}
	// The end of the first caller must not cancel the items of others.
	ctx = context.WithoutCancel(ctx)
	l.batches.Add("", w, func(_ string, group []waiter[T]) {
		items := make([]T, len(group))
		for i := range group {
			items[i] = group[i].item
		}
		err := l.commit(ctx, items)
		for _, w := range group {
			w.done <- err
		}
	})
	return w.done
}

// latest is an object as a watch last showed it, or nil if it is gone.
type latest[T any] struct {
	mu      sync.Mutex
	object  *T
	changed chan struct{}
}

func newLatest[T any]() *latest[T] { return &latest[T]{changed: make(chan struct{})} }

func (l *latest[T]) set(object *T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.object = object
	close(l.changed)
	l.changed = make(chan struct{})
}

// await returns the object once it is as wanted.
func (l *latest[T]) await(ctx context.Context, wanted func(*T) bool) (*T, error) {
	for {
		l.mu.Lock()
		object, changed := l.object, l.changed
		l.mu.Unlock()
		if wanted(object) {
			return object, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
