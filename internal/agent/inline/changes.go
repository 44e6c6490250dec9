/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// rememberEnd is how long the end of an intent is remembered. The kubelet asks for a pod that ends for minutes at most.
const rememberEnd = 10 * time.Minute

// Changes tell calls that wait for an intent that it, or what the agent has of it, has changed.
type Changes struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	waiting map[types.NamespacedName]map[chan struct{}]bool
	// ended: when intents were deleted that have not come again since.
	ended map[types.NamespacedName]time.Time
}

// NewChanges returns Changes that no call waits for.
func NewChanges(clock clock.PassiveClock) *Changes {
	return &Changes{clock: clock, waiting: map[types.NamespacedName]map[chan struct{}]bool{},
		ended: map[types.NamespacedName]time.Time{}}
}

// Exists records whether there is an intent of that name that is not being deleted, and signals the calls.
func (c *Changes) Exists(intent types.NamespacedName, exists bool) {
	c.mu.Lock()
	now := c.clock.Now()
	maps.DeleteFunc(c.ended, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > rememberEnd })
	if _, known := c.ended[intent]; exists {
		delete(c.ended, intent)
	} else if !known {
		c.ended[intent] = now
	}
	c.mu.Unlock()
	c.Notify(intent)
}

// hasEnded reports whether the intent was there and was deleted, as far as this process has seen.
func (c *Changes) hasEnded(intent types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ended := c.ended[intent]
	return ended
}

// Notify signals every call that waits for the intent.
func (c *Changes) Notify(intent types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for changed := range c.waiting[intent] {
		select {
		case changed <- struct{}{}:
		default: // a signal that covers this change is pending
		}
	}
}

// subscribe returns a channel that is signalled at each change until end is called.
func (c *Changes) subscribe(intent types.NamespacedName) (changed <-chan struct{}, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	signal := make(chan struct{}, 1)
	if c.waiting[intent] == nil {
		c.waiting[intent] = map[chan struct{}]bool{}
	}
	c.waiting[intent][signal] = true
	return signal, func() { c.unsubscribe(intent, signal) }
}

func (c *Changes) unsubscribe(intent types.NamespacedName, signal chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.waiting[intent], signal); len(c.waiting[intent]) == 0 {
		delete(c.waiting, intent)
	}
}

// targetLocks let one call at a time work on a target path. The kubelet repeats a call whose connection it has lost.
type targetLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until no other call works on the target, or until ctx ends.
func (l *targetLocks) lock(ctx context.Context, target string) (unlock func(), err error) {
	for {
		free, mine := l.try(target)
		if mine {
			return func() { l.unlock(target) }, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *targetLocks) try(target string) (free <-chan struct{}, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, busy := l.held[target]; busy {
		return held, false
	}
	l.held[target] = make(chan struct{})
	return nil, true
}

func (l *targetLocks) unlock(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[target])
	delete(l.held, target)
}
