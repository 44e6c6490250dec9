/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package batch lets writes of one object go out together: each key has one commit at a time, and what comes
// meanwhile waits and is committed with the next one.
package batch

import (
	"sync"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// Batches of requests by key. The zero value is ready to use.
type Batches[R any] struct {
	// Limiter: each commit takes a place of it. A request that comes while it waits for that is committed with it.
	Limiter *inflight.Limiter

	mu      sync.Mutex
	waiting map[string][]R
	busy    map[string]bool
}

// Add makes r part of the next commit of its key and returns at once. commit is called on another goroutine, never
// twice at a time for one key; all callers pass the same.
func (b *Batches[R]) Add(key string, r R, commit func(key string, group []R)) {
	b.mu.Lock()
	if b.waiting == nil {
		b.waiting, b.busy = map[string][]R{}, map[string]bool{}
	}
	b.waiting[key] = append(b.waiting[key], r)
	idle := !b.busy[key]
	b.busy[key] = true
	b.mu.Unlock()
	if idle {
		go b.drain(key, commit)
	}
}

// drain commits group after group until nothing waits.
func (b *Batches[R]) drain(key string, commit func(string, []R)) {
	for b.more(key) {
		leave := b.Limiter.Take()
		commit(key, b.take(key))
		leave()
	}
}

// more reports whether a request waits for a commit of the key, which is at rest otherwise.
func (b *Batches[R]) more(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting[key]) == 0 {
		delete(b.busy, key)
		return false
	}
	return true
}

func (b *Batches[R]) take(key string) []R {
	b.mu.Lock()
	defer b.mu.Unlock()
	group := b.waiting[key]
	delete(b.waiting, key)
	return group
}

// Waiting says how many requests of the key wait for its next commit.
func (b *Batches[R]) Waiting(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[key])
}
