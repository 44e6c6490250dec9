/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	hawserstatus "github.com/hawser-io/hawser/internal/status"
)

// holds are the places that could not be cleared, by target, and the problems of others.
type holds struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	at    map[string]*hold
}

// hold is why a volume stays at a place.
type hold struct {
	attempts int32
	because  string
	// next is when the place is tried again.
	next time.Time
	// shortened: until when the end of a process does not shorten the wait again.
	shortened time.Time
}

func (h *holds) of(target string) *hold {
	if h.at[target] == nil {
		h.at[target] = &hold{}
	}
	return h.at[target]
}

// news takes in why a place is not as it should be, and reports whether the cause is another one than before.
func (h *holds) news(target, because string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.of(target)
	news := held.because != because
	held.because = because
	return news
}

// delay counts another failed attempt, and returns how long to wait.
func (h *holds) delay(target string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.of(target)
	held.attempts++
	wait := hawserstatus.Backoff(held.attempts)
	held.next = h.clock.Now().Add(wait)
	return wait
}

// wait is how long the place is not tried again; zero if it may be tried now.
func (h *holds) wait(target string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.at[target]; held != nil {
		return max(held.next.Sub(h.clock.Now()), 0)
	}
	return 0
}

// retryNow shortens the wait after the end of a process.
func (h *holds) retryNow(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.at[target]; held != nil {
		held.next = hawserstatus.ShortenWait(h.clock.Now(), held.next, &held.shortened)
	}
}

func (h *holds) forget(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.at, target)
}

// forgetDirectory forgets a directory and all places in it.
func (h *holds) forgetDirectory(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.at, func(at string, _ *hold) bool { return at == target || strings.HasPrefix(at, target+"/") })
}
