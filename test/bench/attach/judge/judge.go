/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package judge measures the time from the request of each volume until a watch shows the result.
package judge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Race is one batch of volumes that are attached or detached.
type Race struct {
	// needed is how many things must be seen of each volume.
	needed int
	// expected is the number of volumes.
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

// NewRace of this number of volumes, with this number of things to see of each.
func NewRace(expected, needed int) *Race {
	return &Race{
		needed: needed, expected: expected,
		begun: map[string]time.Time{}, seen: map[string]map[string]bool{},
		progress: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Begin is called right before the request.
func (r *Race) Begin(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.begun) == 0 {
		r.first = now
	}
	r.begun[name] = now
}

// Saw is called when a watch shows one of the needed things. It ignores a volume that did not begin, and repetitions.
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

// Wait returns when all volumes are through, or when none got through for as long as stallTimeout. The others
// are then left behind. It calls report from time to time with the number of volumes that are through.
func (r *Race) Wait(ctx context.Context, stallTimeout, every time.Duration, report func(through int)) error {
	stalled := time.NewTimer(stallTimeout)
	defer stalled.Stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the volumes: %w", context.Cause(ctx))
		case <-r.done:
			return nil
		case <-stalled.C:
			return nil
		case <-ticker.C:
			report(r.Result().Through)
		case <-r.progress:
			stalled.Reset(stallTimeout)
		}
	}
}

// Result of a race.
type Result struct {
	// Through and LeftBehind are volumes.
	Through    int `json:"volumes"`
	LeftBehind int `json:"leftBehind"`
	// Seconds from the first request to the last volume that got through.
	Seconds float64 `json:"seconds"`
	// PerSecond volumes over that time.
	PerSecond float64 `json:"volumesPerSecond"`
	Latency   Latency `json:"latency"`
}

// Latency of the volumes that got through.
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

// Of returns percentiles: the smallest time that this share of the times does not exceed.
func Of(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(percent int) time.Duration { return sorted[max(0, (len(sorted)*percent+99)/100-1)] }
	return Latency{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}
