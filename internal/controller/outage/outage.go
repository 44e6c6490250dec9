/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package outage measures for how long this process has watched a node being out of reach.
package outage

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Spell identifies one outage of a node. The time of another spell, even of the same node, does not count: in between
// the node may have been reachable. The zero value is a node that is reachable.
type Spell struct {
	// Unready: the Node is not Ready, since this transition of its condition. The time is an identifier, set by another
	// machine's clock; nothing is computed from it.
	Unready    bool
	Transition metav1.Time
	// Absent: there is no Node.
	Absent bool
	// Heard identifies the last renewal of its agent's Lease.
	Heard string
}

// Is reports whether the two are the same outage.
func (s Spell) Is(other Spell) bool {
	return s.Unready == other.Unready && s.Absent == other.Absent && s.Heard == other.Heard && s.Transition.Equal(
		&other.Transition,
	)
}

// Watch counts for how long nodes were observed being out of reach. What counts is time on this process' monotonic
// clock, between two reads of the API server that both succeeded and showed the same spell. Of the time between two
// reads no more counts than was planned: a process that was late, or suspended, has not watched. An outage of the API
// server between two reads that the process did not notice adds one plan, a sixth of the wait, at most; one that a
// read finds adds nothing. The zero value is ready to use.
type Watch struct {
	mu    sync.Mutex
	nodes map[string]*watched
}

type watched struct {
	spell Spell
	total time.Duration
	// last is when the node was read; zero if what comes next does not count from there.
	last time.Time
	// plan is how long after that it is to be read again.
	plan time.Duration
}

// until is the total at now, if nothing has changed since the last read.
func (o *watched) until(now time.Time) time.Duration {
	if o.last.IsZero() {
		return o.total
	}
	return o.total + min(max(now.Sub(o.last), 0), o.plan)
}

// Observe records a read that succeeded and returns for how long the spell was watched. carried is what earlier
// processes have watched of the same spell, plan how long after this read there is to be another one.
func (w *Watch) Observe(node string, s Spell, carried, plan time.Duration, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Is(Spell{}) {
		delete(w.nodes, node)
		return 0
	}
	o := w.nodes[node]
	if o == nil || !o.spell.Is(s) {
		o = w.put(node, s)
	}
	o.total, o.last, o.plan = max(o.until(now), carried), now, plan
	return o.total
}

func (w *Watch) put(node string, s Spell) *watched {
	if w.nodes == nil {
		w.nodes = map[string]*watched{}
	}
	w.nodes[node] = &watched{spell: s}
	return w.nodes[node]
}

// Missed records a read that failed. Neither the time since the last read counts, nor the time until the next one.
func (w *Watch) Missed(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.nodes[node]; o != nil {
		o.last = time.Time{}
	}
}

// Forget drops a node that is reachable again.
func (w *Watch) Forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, node)
}

// Reset drops what was watched of a node. Unlike after Forget, Known is true from then on.
func (w *Watch) Reset(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(node, Spell{})
}

// Known reports whether this process has observed the node, or reset it.
func (w *Watch) Known(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[node] != nil
}

// Total is for how long the node was watched in this spell, if the spell has not ended.
func (w *Watch) Total(node string, s Spell, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.nodes[node]; o != nil && o.spell.Is(s) {
		return o.until(now)
	}
	return 0
}

// Due is how long after now the next read is due, for a caller that wants one in each period; zero if it is due now.
func (w *Watch) Due(node string, period time.Duration, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.nodes[node]
	if o == nil || o.last.IsZero() {
		return 0
	}
	o.plan = min(o.plan, period)
	return max(o.plan-now.Sub(o.last), 0)
}

// Checkpoint is what the next process can continue from; nil if there is nothing.
func (w *Watch) Checkpoint(node string) *volumesv1alpha1.UnreadyObservation {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.nodes[node]
	if o == nil || !o.spell.Unready || o.spell.Transition.IsZero() {
		return nil
	}
	return &volumesv1alpha1.UnreadyObservation{
		Transition: o.spell.Transition, LastRenewal: o.spell.Heard,
		Observed: metav1.Duration{Duration: o.total.Truncate(time.Second)},
	}
}

// Carried is how much of the spell a checkpoint records.
func Carried(c *volumesv1alpha1.UnreadyObservation, s Spell) time.Duration {
	if c == nil || !s.Unready || s.Transition.IsZero() || !c.Transition.Equal(&s.Transition) ||
		c.LastRenewal != s.Heard {
		return 0
	}
	return c.Observed.Duration
}

// Period is how often to read a node that has to be out of reach for so long.
func Period(after time.Duration) time.Duration {
	return min(max(after/6, 10*time.Second), time.Minute)
}
