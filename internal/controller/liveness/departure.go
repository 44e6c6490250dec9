/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

const (
	// departureKept is how long a departure is remembered. The manager that leads records it at once.
	departureKept = time.Hour
	// departureHeard is for how long the Leases must have been watched when a Node goes. A watch that was interrupted may
	// deliver that a minute late, and the last renewals of the agent with it.
	departureHeard = 2 * time.Minute
)

// departed is a Node that this process saw go.
type departed struct {
	node      *corev1.Node
	departure handshake.Departure
	session   session
	at        time.Time
}

// WatchDepartures has the tracker remember which Nodes go, and which sessions began before. It does so in each process,
// so that one that becomes the leader has seen what went before.
func (t *Tracker) WatchDepartures(ctx context.Context, informers cache.Informers) error {
	nodes, err := informers.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = nodes.AddEventHandler(t.departures())
	}
	if err != nil {
		return fmt.Errorf("watching Nodes go: %w", err)
	}
	states, err := informers.GetInformer(ctx, &volumesv1alpha1.NodeVolumeState{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = states.AddEventHandler(t.sessions())
	}
	if err != nil {
		return fmt.Errorf("watching sessions begin: %w", err)
	}
	return nil
}

func (t *Tracker) sessions() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.ObserveSession(o.(*volumesv1alpha1.NodeVolumeState)) },
		UpdateFunc: func(_, is any) { t.ObserveSession(is.(*volumesv1alpha1.NodeVolumeState)) },
		DeleteFunc: func(o any) {
			if node, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				t.forgetReported(node)
			}
		},
	}
}

// forgetReported drops what only the reports to a state that is gone were compared with. Each process does so: the
// leader alone forgets nodes.
func (t *Tracker) forgetReported(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, node)
	delete(t.returned, node)
}

func (t *Tracker) departures() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { t.arrived(o.(*corev1.Node).Name) },
		UpdateFunc: func(was, is any) {
			if was, is := was.(*corev1.Node), is.(*corev1.Node); was.UID != is.UID {
				t.vanished(is.Name)
				t.arrived(is.Name)
			}
		},
		DeleteFunc: func(o any) {
			switch o := o.(type) {
			case *corev1.Node:
				t.Departed(o)
			case toolscache.DeletedFinalStateUnknown:
				t.vanished(o.Key)
			}
		},
	}
}

// vanished forgets what was seen go before, and takes note of a Node that a list lacks. It went some time ago: its
// kubelet and its agent may have been heard since they were seen last.
func (t *Tracker) vanished(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, node)
	t.last[node] = nil
}

// arrived forgets what was seen go before. It is about an earlier life of the Node. So is what the agent has reported:
// until it is heard again, nothing shows what the kubelet of the earlier life had mounted.
func (t *Tracker) arrived(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, node)
	if _, went := t.last[node]; went {
		delete(t.last, node)
		t.returned[node] = t.known(node).renewal
	}
}

// Returned reports whether this process saw that the Node came back, and has not heard its agent since.
func (t *Tracker) Returned(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, returned := t.returned[node]
	return returned
}

// Departed takes note of a Node that went, and wakes it. Its machine was out of reach if neither the kubelet nor the
// agent was heard any more. What is heard of an agent beforehand shows nothing of the time afterwards: what deletes the
// Node may have ended the agent too, and may be heard of late. A request of this process that failed puts nothing of
// that in doubt: the watch of the Leases has not ended.
func (t *Tracker) Departed(node *corev1.Node) {
	t.mu.Lock()
	now := t.clock.Now()
	maps.DeleteFunc(t.gone, func(_ string, d departed) bool { return now.Sub(d.at) > departureKept })
	listened := t.ears.voices != nil && now.Sub(t.ears.since) >= departureHeard
	known := t.known(node.Name)
	t.gone[node.Name] = departed{node: node, at: now, session: known.session, departure: handshake.Departure{
		NodeUID: node.UID, OutOfReach: listened && t.unbroken(node.Name) >= 0 && kubeletLost(node), Renewal: known.renewal}}
	t.last[node.Name] = nil
	if node.Annotations[cached.ManagedNodeAnnotation] == "true" {
		t.last[node.Name] = &corev1.Node{Status: corev1.NodeStatus{
			NodeInfo: node.Status.NodeInfo, VolumesInUse: node.Status.VolumesInUse}}
	}
	t.mu.Unlock()
	t.wake(node.Name)
}

// Covers reports whether the agent's last report of the volume is of all that its kubelet did, although the Node is
// gone. A kubelet that leaves attaching to a controller mounts a volume only after the Node lists it in use, so one
// that was not listed when the Node went is as the agent reported it, however long ago that was. Where this process did
// not see the Node go, or the kubelet attaches by itself, only an agent that is heard shows that. No report covers a
// Node that came back, and may have gone again, before the agent was heard.
func (t *Tracker) Covers(nvs *volumesv1alpha1.NodeVolumeState, volume string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, returned := t.returned[nvs.Name]; returned || !t.isCurrent(nvs) {
		return false
	}
	if last := t.last[nvs.Name]; last != nil {
		return !machine.ReportedByAnother(last, nvs) &&
			!slices.Contains(last.Status.VolumesInUse, corev1.UniqueVolumeName(volume))
	}
	known := t.nodes[nvs.Name]
	return known != nil && known.renewal != "" && t.clock.Since(known.at) < known.duration
}

// Departure of the node of nvs that this process saw last; nil if it saw none. A Node that another machine had
// registered than the one that reported shows nothing of that one.
func (t *Tracker) Departure(nvs *volumesv1alpha1.NodeVolumeState) *handshake.Departure {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, seen := t.gone[nvs.Name]
	if !seen || t.clock.Since(d.at) > departureKept {
		return nil
	}
	d.departure.OutOfReach = d.departure.OutOfReach && !machine.ReportedByAnother(d.node, nvs)
	if d.session.state == nvs.UID { // otherwise no report to this state had been seen
		d.departure.Session = d.session.number
	}
	return &d.departure
}
