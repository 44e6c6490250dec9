/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package liveness knows from an agent's Lease whether the agent can still be heard.
package liveness

import (
	"context"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// DefaultDuration is how long an agent counts as reachable after a renewal, and how long one that was never heard may take.
const DefaultDuration = 40 * time.Second

// Tracker remembers, on this process' own clock, when each node's agent was last heard. The times in the Leases
// are not compared with ours: clocks of machines differ and jump.
type Tracker struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]*heard
}

type heard struct {
	renewal  string
	at       time.Time
	duration time.Duration
}

// NewTracker returns a Tracker that has heard nobody yet.
func NewTracker(c clock.PassiveClock) *Tracker {
	return &Tracker{clock: c, nodes: map[string]*heard{}}
}

// Observe takes note of a Lease and says whether the agent had been unreachable until now.
func (t *Tracker) Observe(node string, lease *coordinationv1.Lease) bool {
	renewal := string(lease.UID) + renewTime(lease.Spec.RenewTime)
	duration := DefaultDuration
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		duration = time.Duration(*s) * time.Second
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.nodes[node]
	if known != nil && known.renewal == renewal {
		return false
	}
	now := t.clock.Now()
	back := known == nil || now.Sub(known.at) >= known.duration
	t.nodes[node] = &heard{renewal: renewal, at: now, duration: duration}
	return back
}

func renewTime(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Silence says how long the node's agent has been overdue; negative is the time that is left.
// The clock of an agent that was never heard starts with the first question.
func (t *Tracker) Silence(node string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	known := t.nodes[node]
	if known == nil {
		known = &heard{at: now, duration: DefaultDuration}
		t.nodes[node] = known
	}
	return now.Sub(known.at) - known.duration
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
}

// Handler feeds the Tracker from a watch on Leases. It wakes a node's reconcile only when its agent came back:
// renewals as such are no work.
func (t *Tracker) Handler() handler.EventHandler {
	observe := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		node, ok := strings.CutPrefix(o.GetName(), volumesv1alpha1.AgentLeasePrefix)
		if !ok || o.GetNamespace() != volumesv1alpha1.InstallNamespace {
			return
		}
		if t.Observe(node, o.(*coordinationv1.Lease)) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			observe(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			observe(e.ObjectNew, q)
		},
	}
}
