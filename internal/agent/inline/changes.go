/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Changes tell calls that wait for an intent that it, or what the agent has of it, has changed.
type Changes struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]map[chan struct{}]bool
}

// NewChanges returns Changes that no call waits for.
func NewChanges() *Changes {
	return &Changes{waiting: map[types.NamespacedName]map[chan struct{}]bool{}}
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
