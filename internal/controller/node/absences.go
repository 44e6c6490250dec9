/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// absences counts for how long Nodes were watched being gone. What counts is time on this process' monotonic clock between two
// looks at the API server that both succeeded and found no Node and the same last word of its agent. Of the time between
// two looks no more counts than was planned: who comes late, or was suspended, has not watched.
type absences struct {
	mu    sync.Mutex
	nodes map[string]*absence
}

type absence struct {
	word  string
	total time.Duration
	// last is when the Node was looked for; zero when what comes next is not counted from there.
	last time.Time
}

// look takes note of a look that found the Node gone and this last word of its agent, and returns for how long that has been
// so. checkpoint is what an earlier process left; it counts with the first look of this one only.
func (a *absences) look(node, word string, checkpoint *volumesv1alpha1.GoneObservation, plan time.Duration, now time.Time) volumesv1alpha1.GoneObservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.nodes[node]
	switch {
	case known == nil:
		known = &absence{word: word}
		if checkpoint != nil && checkpoint.LastWord == word {
			known.total = checkpoint.Observed.Duration
		}
		if a.nodes == nil {
			a.nodes = map[string]*absence{}
		}
		a.nodes[node] = known
	case known.word != word:
		*known = absence{word: word}
	case !known.last.IsZero():
		known.total += min(max(now.Sub(known.last), 0), plan)
	}
	known.last = now
	return volumesv1alpha1.GoneObservation{LastWord: word, Observed: metav1.Duration{Duration: known.total.Truncate(time.Second)}}
}

// due is when to look next; zero when it is now.
func (a *absences) due(node string, period time.Duration, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.nodes[node]
	if known == nil || known.last.IsZero() {
		return 0
	}
	return max(period-now.Sub(known.last), 0)
}

// missed: a look failed. The time since the last one does not count, nor does that until the next one.
func (a *absences) missed(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.nodes[node]; known != nil {
		known.last = time.Time{}
	}
}

// registered: there is, or was for a moment, a Node of that name. Nothing that was watched before counts, whoever wrote it down.
func (a *absences) registered(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes == nil {
		a.nodes = map[string]*absence{}
	}
	a.nodes[node] = &absence{}
}

// forget a Node that is there, and of which nothing is written down.
func (a *absences) forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes, node)
}
