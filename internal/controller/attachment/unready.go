/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// spell is one stretch of time in which a node is out of reach. Any other one, even of the same node, is counted
// anew: in between the node may have been well. The zero value is a node that is well.
type spell struct {
	// unready: the Node is not Ready, since this transition of its condition. The time is an identifier, made by
	// somebody's clock; nothing is computed from it.
	unready    bool
	transition metav1.Time
	// absent: there is no Node. heard is the last word of its agent.
	absent bool
	heard  string
}

func (s spell) is(other spell) bool {
	return s.unready == other.unready && s.absent == other.absent && s.heard == other.heard && s.transition.Equal(&other.transition)
}

// unready counts for how long nodes were watched being out of reach. What counts is time on this process' monotonic clock, between
// two looks at the API server that both succeeded and showed the same spell. Of the time between two looks no more counts than was
// planned: who comes late, or was suspended, has not watched. So an API server that was away unnoticed between two looks
// adds one plan, a sixth of the wait, at most; one that a look finds away adds nothing.
type unready struct {
	mu    sync.Mutex
	nodes map[string]*watched
}

type watched struct {
	spell spell
	total time.Duration
	// last is when the node was looked at; zero when what comes next is not counted from there.
	last time.Time
	// plan is how long after that it is to be looked at again.
	plan time.Duration
}

// until now, if nothing has changed since the last look.
func (w *watched) until(now time.Time) time.Duration {
	if w.last.IsZero() {
		return w.total
	}
	return w.total + min(max(now.Sub(w.last), 0), w.plan)
}

// looked takes note of a look that succeeded. carried is what earlier processes have watched of the same spell, plan how
// long after this look there is to be another one.
func (u *unready) looked(node string, s spell, carried, plan time.Duration, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.is(spell{}) {
		delete(u.nodes, node)
		return
	}
	w := u.nodes[node]
	if w == nil || !w.spell.is(s) {
		w = &watched{spell: s}
		if u.nodes == nil {
			u.nodes = map[string]*watched{}
		}
		u.nodes[node] = w
	}
	w.total, w.last, w.plan = max(w.until(now), carried), now, plan
}

// missed: a look failed. The time since the last one does not count, nor does that until the next one.
func (u *unready) missed(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w := u.nodes[node]; w != nil {
		w.last = time.Time{}
	}
}

// forget a node that is well again.
func (u *unready) forget(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.nodes, node)
}

// total for which the node was watched in this spell, if it is in it still.
func (u *unready) total(node string, s spell, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w := u.nodes[node]; w != nil && w.spell.is(s) {
		return w.until(now)
	}
	return 0
}

// due is when to look next, for somebody who wants a look in each period; zero when it is now.
func (u *unready) due(node string, period time.Duration, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.nodes[node]
	if w == nil || w.last.IsZero() {
		return 0
	}
	w.plan = min(w.plan, period)
	return max(w.plan-now.Sub(w.last), 0)
}

// checkpoint is what the next process can go on from; nil when there is nothing.
func (u *unready) checkpoint(node string) *volumesv1alpha1.UnreadyObservation {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.nodes[node]
	if w == nil || !w.spell.unready || w.spell.transition.IsZero() {
		return nil
	}
	return &volumesv1alpha1.UnreadyObservation{
		Transition: w.spell.transition, Observed: metav1.Duration{Duration: w.total.Truncate(time.Second)},
	}
}

// carried is what a checkpoint says of a spell.
func carried(c *volumesv1alpha1.UnreadyObservation, s spell) time.Duration {
	if c == nil || !s.unready || s.transition.IsZero() || !c.Transition.Equal(&s.transition) {
		return 0
	}
	return c.Observed.Duration
}

// lookPeriod is how often a node is looked at that has to be out of reach for so long.
func lookPeriod(after time.Duration) time.Duration {
	return min(max(after/6, 10*time.Second), time.Minute)
}

// readiness of the Node: whether it is Ready, and since when it is or is not.
func readiness(node *corev1.Node) (ready bool, since metav1.Time) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime
		}
	}
	return false, metav1.Time{}
}

func isReady(node *corev1.Node) bool {
	ready, _ := readiness(node)
	return ready
}
