/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"slices"
	"sync"
)

// turns of claims: of the pods that may become the first user of one, one at a time is placed.
type turns struct {
	mu    sync.Mutex
	ended *sync.Cond
	taken map[string]bool
}

func newTurns() *turns {
	t := &turns{taken: map[string]bool{}}
	t.ended = sync.NewCond(&t.mu)
	return t
}

// take waits until none of the claims is taken, and takes all of them at once: a reconcile that waits keeps none from
// others. The caller calls end.
func (t *turns) take(claims []string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slices.ContainsFunc(claims, func(claim string) bool { return t.taken[claim] }) {
		t.ended.Wait()
	}
	for _, claim := range claims {
		t.taken[claim] = true
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, claim := range claims {
			delete(t.taken, claim)
		}
		t.ended.Broadcast()
	}
}
