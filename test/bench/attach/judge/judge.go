/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package judge takes the times: when each volume was wished for, and when what was wished was seen by a watch.
package judge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Race is one batch of volumes on its way to the same end.
type Race struct {
	// needed are the things that have to be seen of each volume.
	needed int
	// expected volumes.
	expected int

	mu       sync.Mutex
	begun    map[string]time.Time
	seen     map[string]map[string]bool
	times    []time.Duration
	first    time.Time
	last     time.Time
	progress chan struct{}
	done     chan struct{}
}

// NewRace of so many volumes, of each of which so many things have to be seen.
func NewRace(expected, needed int) *Race {
	return &Race{
		needed: needed, expected: expected,
		begun: map[string]time.Time{}, seen: map[string]map[string]bool{},
		progress: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Begin is called right before the request that wishes.
func (r *Race) Begin(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.begun) == 0 {
		r.first = now
	}
	r.begun[name] = now
}

// Saw is called when a watch shows one of the things that are needed. What did not begin, or was seen before, does not count.
func (r *Race) Saw(name, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun, running := r.begun[name]
	if !running || r.seen[name][what] {
		return
	}
	if r.seen[name] == nil {
		r.seen[name] = map[string]bool{}
	}
	r.seen[name][what] = true
	if len(r.seen[name]) < r.needed {
		return
	}
	r.last = time.Now()
	r.times = append(r.times, r.last.Sub(begun))
	select {
	case r.progress <- struct{}{}:
	default:
	}
	if len(r.times) == r.expected {
		close(r.done)
	}
}

// Wait returns when all are through, or when none got through for as long as patience: those that are left then are left
// behind. It reports now and then how many are through.
func (r *Race) Wait(ctx context.Context, patience, every time.Duration, report func(through int)) error {
	patient := time.NewTimer(patience)
	defer patient.Stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the volumes: %w", context.Cause(ctx))
		case <-r.done:
			return nil
		case <-patient.C:
			return nil
		case <-ticker.C:
			report(r.Result().Through)
		case <-r.progress:
			patient.Reset(patience)
		}
	}
}

// Result of a race.
type Result struct {
	// Through and LeftBehind are volumes.
	Through    int `json:"volumes"`
	LeftBehind int `json:"leftBehind"`
	// Seconds from the first wish to the last volume that came through.
	Seconds float64 `json:"seconds"`
	// PerSecond volumes over that time.
	PerSecond float64 `json:"volumesPerSecond"`
	Latency   Latency `json:"latency"`
}

// Latency of the volumes that came through.
type Latency struct {
	P50 time.Duration `json:"p50Nanoseconds"`
	P90 time.Duration `json:"p90Nanoseconds"`
	P99 time.Duration `json:"p99Nanoseconds"`
	Max time.Duration `json:"maxNanoseconds"`
}

// Result so far.
func (r *Race) Result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := Result{Through: len(r.times), LeftBehind: r.expected - len(r.times), Latency: Of(r.times)}
	if len(r.times) > 0 {
		result.Seconds = r.last.Sub(r.first).Seconds()
		result.PerSecond = float64(len(r.times)) / result.Seconds
	}
	return result
}

// Of many times: the smallest that so many of a hundred do not exceed.
func Of(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(percent int) time.Duration { return sorted[max(0, (len(sorted)*percent+99)/100-1)] }
	return Latency{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}
