/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// observer records, in Coexist, which volumes upstream and the kubelets use. It reads from the audit log which
// user deleted which attachment. It separates what the protocol of Coexist does not cover from violations.
type observer struct {
	sys *system.System

	mu     sync.Mutex
	claims map[string]*claim // by name
	names  map[string]place  // of attachments
	// wanted are the volumes of each pod that is not being deleted. listed are those that a Node lists as attached or in
	// use.
	wanted map[types.UID][]place
	listed map[string][]place
	// used is how long, without a break, upstream or a kubelet used a volume. away is how long a node was out of service.
	used map[place][]interval
	away map[string][]interval
}

func newObserver(sys *system.System) *observer {
	return &observer{
		sys: sys, claims: map[string]*claim{}, names: map[string]place{}, wanted: map[types.UID][]place{},
		listed: map[string][]place{},
		used:   map[place][]interval{}, away: map[string][]interval{},
	}
}

func (w *observer) know(claims []*claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range claims {
		w.claims[c.name] = c
		for _, node := range w.sys.Nodes {
			w.names[volume.AttachmentName(system.DriverName, c.handle, node)] = place{c.handle, node}
		}
	}
}

func (w *observer) start(ctx context.Context) error {
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}} {
		if err := follow(ctx, w.sys.Client, list, func(e watch.Event) { w.see(e, time.Now()) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *observer) see(e watch.Event, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := e.Type == watch.Deleted
	switch o := e.Object.(type) {
	case *corev1.Pod:
		delete(w.wanted, o.UID)
		if !gone && o.DeletionTimestamp == nil {
			w.wanted[o.UID] = w.placesOfPod(o)
		}
	case *corev1.Node:
		delete(w.listed, o.Name)
		if !gone {
			w.listed[o.Name] = w.placesOfNode(o)
		}
		out := slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		w.away[o.Name] = turn(w.away[o.Name], out, now)
	}
	uses := map[place]bool{}
	for _, p := range slices.Concat(slices.Concat(slices.Collect(maps.Values(w.wanted))...),
		slices.Concat(slices.Collect(maps.Values(w.listed))...)) {
		uses[p] = true
	}
	for _, p := range w.names {
		w.used[p] = turn(w.used[p], uses[p], now)
	}
}

func (w *observer) placesOfPod(pod *corev1.Pod) []place {
	var places []place
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && w.claims[v.PersistentVolumeClaim.ClaimName] != nil {
			places = append(places, place{w.claims[v.PersistentVolumeClaim.ClaimName].handle, pod.Spec.NodeName})
		}
	}
	return places
}

func (w *observer) placesOfNode(node *corev1.Node) []place {
	var places []place
	add := func(name corev1.UniqueVolumeName) {
		_, handle := volume.Split(string(name))
		places = append(places, place{handle, node.Name})
	}
	for _, name := range node.Status.VolumesInUse {
		add(name)
	}
	for _, a := range node.Status.VolumesAttached {
		add(a.Name)
	}
	return places
}

// turn begins an interval or ends it.
func turn(intervals []interval, on bool, now time.Time) []interval {
	last := len(intervals) - 1
	switch open := last >= 0 && intervals[last].to.IsZero(); {
	case on && !open:
		return append(intervals, interval{from: now})
	case !on && open:
		intervals[last].to = now
	}
	return intervals
}

// detach is an accepted DELETE of an attachment.
type detach struct {
	place
	received, answered time.Time
	by                 string
}

func (d detach) String() string {
	return fmt.Sprintf("%s deleted the attachment of volume %s to %s at %s", d.by, d.volume, d.node,
		d.received.Local().Format("15:04:05.000"))
}

// detaches, ordered by the time of the request.
func (w *observer) detaches() ([]detach, error) {
	requests, err := w.sys.RequestsOn("volumeattachments")
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var detaches []detach
	for _, r := range requests {
		p, known := w.names[r.ObjectRef.Name]
		if known && r.Verb == "delete" && r.ResponseStatus.Code/100 == 2 {
			detaches = append(detaches, detach{p, r.Received, r.Answered, r.User.Username})
		}
	}
	slices.SortStableFunc(detaches, func(a, b detach) int { return a.received.Compare(b.received) })
	return detaches, nil
}

// how relates a detach to the use of the volume by upstream and its kubelet.
type how string

const (
	// free means that upstream and the kubelet did not use the volume.
	free how = ""
	// inGap means that Hawser's DELETE met a use that began after Hawser's last check. docs/internals/handshake.md
	// describes it.
	inGap how = "in the gap between Hawser's check and its DELETE"
	// outOfService means upstream's DELETE on a node that is out of service, which waits for no kubelet.
	outOfService how = "by upstream on a node out of service"
	// blind means that Hawser's DELETE met a use that was older than Hawser's check can be.
	blind how = "by Hawser although a pod or the kubelet had used it"
)

const (
	// checkAge is how old Hawser's check may be when it sends a DELETE. The observer sees changes late, too.
	checkAge = time.Second + slack
	slack    = 500 * time.Millisecond
)

func (w *observer) judge(d detach) how {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d.by {
	case system.UpstreamUser:
		// Upstream's cache may be late.
		if slices.ContainsFunc(w.away[d.node],
			func(s interval) bool { return s.covers(d.received) || s.covers(d.received.Add(-10*slack)) }) {
			return outOfService
		}
	case system.ManagerUser:
		for _, s := range w.used[d.place] {
			switch {
			case !s.covers(d.answered.Add(slack)):
			case s.covers(d.received.Add(-checkAge)):
				return blind
			default:
				return inGap
			}
		}
	}
	return free
}

// inquiry is a snapshot of the observer's findings. The nil one is empty.
type inquiry struct {
	entries  []ledger.Entry
	detaches []detach
	hows     []how
	// taken is how long a used volume was detached from a node, until it was unstaged there or the node rebooted.
	taken map[place][]takenInterval
}

type takenInterval struct {
	interval
	how how
}

func (w *observer) inquire(entries []ledger.Entry) (*inquiry, error) {
	detaches, err := w.detaches()
	if err != nil {
		return nil, err
	}
	i := &inquiry{entries: entries, detaches: detaches, taken: map[place][]takenInterval{}}
	for _, d := range detaches {
		i.hows = append(i.hows, w.judge(d))
	}
	return i, nil
}

// blind are the forbidden detaches.
func (i *inquiry) blind() []detach {
	var found []detach
	for n := range i.len() {
		if i.hows[n] == blind {
			found = append(found, i.detaches[n])
		}
	}
	return found
}

func (i *inquiry) len() int {
	if i == nil {
		return 0
	}
	return len(i.detaches)
}

// soon is how long after a DELETE in the gap a kubelet may make its call, if it checked the Node before.
const soon = 10 * time.Second

// excuses returns the risk that explains a violation: of the last DELETE before it, or of an earlier one that left a
// mount.
func (i *inquiry) excuses(v ledger.Violation) how {
	if i.len() == 0 || v.Method == "ControllerPublishVolume" {
		return free // no DELETE makes a driver publish twice
	}
	for p, intervals := range i.taken {
		at := slices.IndexFunc(intervals, func(s takenInterval) bool { return p.volume == v.Volume && s.covers(v.Time) })
		if at >= 0 {
			return intervals[at].how
		}
	}
	last := -1
	for n, d := range i.detaches {
		if d.place == (place{v.Volume, v.Node}) && d.received.Before(v.Time) {
			last = n
		}
	}
	detached := v.Method == "ControllerUnpublishVolume"
	switch {
	case last < 0 || i.hows[last] == free || i.hows[last] == blind:
		return free
	case v.Phase != ledger.Start || !detached && v.Time.Sub(i.detaches[last].received) > soon:
		return free
	}
	i.taken[i.detaches[last].place] = append(i.taken[i.detaches[last].place], takenInterval{i.until(v), i.hows[last]})
	return i.hows[last]
}

// until is the interval from a violation until the volume is unstaged on that node, or the node rebooted.
func (i *inquiry) until(v ledger.Violation) interval {
	s := interval{from: v.Time}
	for _, e := range i.entries {
		unstaged := e.Phase == ledger.Effect && e.Method == "NodeUnstageVolume" && e.Code == "OK" && e.Volume == v.Volume
		rebooted := e.Phase == ledger.Note && e.Method == ledger.Reboot
		if e.Seq > v.Seq && e.Node == v.Node && (unstaged || rebooted) {
			s.to = e.Time
			return s
		}
	}
	return s
}
