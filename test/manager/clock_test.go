/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"sync"
	"time"
	"unsafe"
)

// stepClock is the real clock plus what it was advanced by.
type stepClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func newStepClock() *stepClock { return &stepClock{} }

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *stepClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *stepClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// offsetClock is a stepClock of a machine whose wall clock was set; its monotonic clock is not affected.
type offsetClock struct {
	*stepClock
	by time.Duration
}

func (c offsetClock) Now() time.Time {
	now := c.stepClock.Now()
	// The seconds of a Time with a monotonic reading are above its 30 bits of nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall = uint64(int64(*wall) + int64(c.by/time.Second)<<30)
	return now
}

func (c offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
