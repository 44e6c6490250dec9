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

// lane has one commit at a time, which holds a slot; what comes while it waits for that goes out with it, and what comes
// meanwhile with the next one.
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

// join has item go out with the next commit, of whose end the channel tells.
func (l *lane[T]) join(ctx context.Context, item T) <-chan error {
	w := waiter[T]{item: item, done: make(chan error, 1)}
	// What others add is not cut off when the first one is done.
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

// latest is an object as a watch last showed it; nil when it is gone.
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

// await returns the object once it is as it is wanted.
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
