/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package liveness knows from an agent's Lease, and from the sessions that it begins, whether the agent can be heard.
package liveness

import (
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// DefaultDuration is how long an agent counts as reachable after a renewal, and how long one that was never heard may
// take.
const DefaultDuration = 40 * time.Second

// Tracker remembers, on this process' own clock, when each node's agent was last heard. The times in the Leases
// are not compared with ours: clocks of machines differ and jump.
type Tracker struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]*heard
	ears  ears
	// wasRestored: the watch before has ended while an agent reported a restore.
	wasRestored bool
	// awaited maps a node to the renewal after which the next one wakes it.
	awaited map[string]string
	// gone are the Nodes that this process saw go.
	gone map[string]departed
	// last is what the kubelet of each Node that went said last of its machine and of the volumes in use, as long as
	// something may rest on it; nil where this process did not see that.
	last map[string]*corev1.Node
	// returned maps a Node that came back to the renewal that was last then, until its agent is heard.
	returned  map[string]string
	listeners []func(node string)
}

type heard struct {
	renewal  string
	voice    voice
	at       time.Time
	duration time.Duration
	session  session
	// begun is when the session was new to this process.
	begun time.Time
	// doubted is when the API server did not answer this process last.
	doubted time.Time
}

// session of an agent, of those that report to the state with that UID.
type session struct {
	state  types.UID
	number int64
}

// NewTracker returns a Tracker that has heard no agent yet.
func NewTracker(c clock.PassiveClock) *Tracker {
	return &Tracker{clock: c, nodes: map[string]*heard{}, awaited: map[string]string{},
		gone: map[string]departed{}, last: map[string]*corev1.Node{},
		returned: map[string]string{}}
}

// Observe records a Lease and reports whether the agent had been unreachable until now. A renewal that is awaited wakes
// the node.
func (t *Tracker) Observe(node string, lease *coordinationv1.Lease) bool {
	renewal := handshake.Renewal(lease)
	back, awaited := t.observe(node, lease, renewal)
	if awaited {
		t.wake(node)
	}
	return back
}

func (t *Tracker) observe(node string, lease *coordinationv1.Lease, renewal string) (back, awaited bool) {
	duration := DefaultDuration
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		duration = time.Duration(*s) * time.Second
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.nodes[node]
	if known != nil && known.renewal == renewal {
		return false, false
	}
	now := t.clock.Now()
	back = known == nil || now.Sub(known.at) >= known.duration
	next := &heard{renewal: renewal, voice: voiceOf(lease), at: now, duration: duration}
	if known != nil {
		next.session, next.begun = known.session, known.begun
	}
	t.nodes[node] = next
	if after, waits := t.awaited[node]; waits && after != renewal {
		delete(t.awaited, node)
		return back, true
	}
	return back, false
}

// ObserveSession has a session that is new to this process count as a sign of life, as a renewal does: an agent reports
// before it renews its Lease, and what is decided of it after that report is not voided by it. One of which the Lease
// has a report began before that renewal, and shows nothing more.
func (t *Tracker) ObserveSession(nvs *volumesv1alpha1.NodeVolumeState) {
	is := session{state: nvs.UID, number: nvs.Status.Protocol.Session}
	if is.number == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.known(nvs.Name)
	if known.session == is {
		return
	}
	known.session = is
	if known.voice.state != is.state || known.voice.reports < is.number {
		known.begun = t.clock.Now()
	}
}

// Await has the next renewal of the node's agent after this one wake the node, once. It returns true if another one was
// seen before.
func (t *Tracker) Await(node, renewal string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.nodes[node]; known != nil && known.renewal != "" && known.renewal != renewal {
		delete(t.awaited, node)
		return true
	}
	t.awaited[node] = renewal
	return false
}

// Silence says how long the node's agent has been overdue; negative is the time that is left.
// The clock of an agent that was never heard starts with the first question.
func (t *Tracker) Silence(node string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.silence(node)
}

// silence of the agent, as far as it could have been heard.
func (t *Tracker) silence(node string) time.Duration {
	known := t.known(node)
	return min(t.unbroken(node), t.clock.Now().Sub(known.doubted)-known.duration)
}

// unbroken is the silence, whether the API server has answered meanwhile or not.
func (t *Tracker) unbroken(node string) time.Duration {
	now, known := t.clock.Now(), t.known(node)
	return min(now.Sub(known.at), now.Sub(known.begun)) - known.duration
}

// Doubt the silence of the node's agent: the API server did not answer, so the agent may not have been able to renew
// its Lease. It has its full time again. What was heard of it stays.
func (t *Tracker) Doubt(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known(node).doubted = t.clock.Now()
}

// known of the node. The clock of an agent that was never heard starts now.
func (t *Tracker) known(node string) *heard {
	known := t.nodes[node]
	if known == nil {
		known = &heard{at: t.clock.Now(), duration: DefaultDuration}
		t.nodes[node] = known
	}
	return known
}

// LastWord identifies the last renewal that was seen of the node's agent; empty for one that was never heard.
func (t *Tracker) LastWord(node string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.nodes[node]; known != nil {
		return known.renewal
	}
	return ""
}

// Forget drops what is known of a node that is gone.
func (t *Tracker) Forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nodes, node)
	delete(t.last, node)
	delete(t.returned, node)
}

// begin to listen: what the Leases hold may be of the past.
func (t *Tracker) begin(leases []coordinationv1.Lease) {
	t.mu.Lock()
	t.ears = ears{since: t.clock.Now(), standing: map[string]string{}, voices: map[string]voice{},
		behind: map[string]time.Time{}}
	t.mu.Unlock()
	for i := range leases {
		node, ok := strings.CutPrefix(leases[i].Name, volumesv1alpha1.AgentLeasePrefix)
		if !ok {
			continue
		}
		t.mu.Lock()
		t.ears.standing[node] = handshake.Renewal(&leases[i])
		t.mu.Unlock()
		if t.Observe(node, &leases[i]) {
			t.wake(node)
		}
	}
}

// deaf forgets what was heard: the watch has ended.
func (t *Tracker) deaf() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wasRestored = t.restored()
	t.ears = ears{}
}

// hear a Lease that the watch delivered. Renewals as such are no work.
func (t *Tracker) hear(lease *coordinationv1.Lease) {
	node, ok := strings.CutPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix)
	if !ok {
		return
	}
	back := t.Observe(node, lease)
	t.mu.Lock()
	before, known := t.ears.voices[node]
	renewed := known || t.ears.standing[node] != handshake.Renewal(lease)
	heard := voiceOf(lease)
	if renewed {
		t.ears.voices[node] = heard
	}
	before.reports = heard.reports
	news := renewed && (!known || before != heard)
	if last, returned := t.returned[node]; returned && renewed && last != handshake.Renewal(lease) {
		delete(t.returned, node)
		news = true
	}
	t.mu.Unlock()
	if back || news {
		t.wake(node)
	}
}

// withdraw the restore that the agent of a deleted Lease has reported. An agent that lives makes its Lease again, and
// reports it once more. One that has ended would keep all evidence from counting. What else was heard of it stays.
func (t *Tracker) withdraw(lease *coordinationv1.Lease) {
	node, ok := strings.CutPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix)
	if !ok {
		return
	}
	t.mu.Lock()
	v := t.ears.voices[node]
	withdrawn := v.restored
	if withdrawn {
		v.restored, v.restoreID = false, ""
		t.ears.voices[node], t.ears.withdrawn = v, t.clock.Now()
	}
	t.mu.Unlock()
	if withdrawn {
		t.wake(node)
	}
}

func (t *Tracker) wake(node string) {
	t.mu.Lock()
	listeners := slices.Clone(t.listeners)
	t.mu.Unlock()
	for _, wake := range listeners {
		wake(node)
	}
}
