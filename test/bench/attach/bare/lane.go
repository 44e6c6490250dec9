/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"sync"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// lane has one commit at a time, which holds a slot; what comes while it waits for that goes out with it, and what comes
// meanwhile with the next one.
type lane[T any] struct {
	commit func(context.Context, []T) error
	slots  *inflight.Slots

	mu      sync.Mutex
	waiting []waiter[T]
	busy    bool
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, w)
	if !l.busy {
		l.busy = true
		// What others add is not cut off when the first one is done.
		go l.drain(context.WithoutCancel(ctx))
	}
	return w.done
}

func (l *lane[T]) drain(ctx context.Context) {
	for l.more() {
		leave := l.slots.Take()
		group := l.take()
		items := make([]T, len(group))
		for i := range group {
			items[i] = group[i].item
		}
		err := l.commit(ctx, items)
		leave()
		for _, w := range group {
			w.done <- err
		}
	}
}

// more says whether somebody waits; the lane is at rest otherwise.
func (l *lane[T]) more() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = len(l.waiting) > 0
	return l.busy
}

func (l *lane[T]) take() []waiter[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	group := l.waiting
	l.waiting = nil
	return group
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
