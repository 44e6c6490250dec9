/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package batch

import (
	"context"
	"time"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// readTimeout bounds a read that is shared, of whose readers no one's context may end it.
const readTimeout = 30 * time.Second

// Reads that several callers want at a time are one. It begins after all that share it have asked, so it is as live
// for each of them as one of its own.
type Reads[T any] struct {
	read    func(ctx context.Context, key string) (T, error)
	batches Batches[*reader[T]]
}

type reader[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// NewReads makes them. Each read holds one of the slots.
func NewReads[T any](s *inflight.Limiter, read func(ctx context.Context, key string) (T, error)) *Reads[T] {
	return &Reads[T]{read: read, batches: Batches[*reader[T]]{Limiter: s}}
}

// Get reads what the key names. The value is shared and must not be changed; while the caller waits, its slot is
// lent.
func (r *Reads[T]) Get(ctx context.Context, key string) (T, error) {
	own := &reader[T]{done: make(chan struct{})}
	r.batches.Add(key, own, r.commit)
	if err := inflight.Await(ctx, own.done); err != nil {
		var none T
		return none, err
	}
	return own.value, own.err
}

func (r *Reads[T]) commit(key string, group []*reader[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	value, err := r.read(ctx, key)
	for _, one := range group {
		one.value, one.err = value, err
		close(one.done)
	}
}
