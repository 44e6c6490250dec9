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

// witness sees, in Coexist, what upstream and the kubelets count on, and reads in the audit log who deleted which attachment. So
// it tells what the protocol of Coexist does not cover from what must not happen.
type witness struct {
	sys *system.System

	mu     sync.Mutex
	claims map[string]*claim // by name
	names  map[string]place  // of attachments
	// wanted are the volumes of each pod that is not being deleted, listed those that a Node lists as attached or in use.
	wanted map[types.UID][]place
	listed map[string][]place
	// used is for how long, without a break, one or the other counted on a volume; away for how long a node was out of service.
	used map[place][]spell
	away map[string][]spell
}

func newWitness(sys *system.System) *witness {
	return &witness{
		sys: sys, claims: map[string]*claim{}, names: map[string]place{}, wanted: map[types.UID][]place{}, listed: map[string][]place{},
		used: map[place][]spell{}, away: map[string][]spell{},
	}
}

func (w *witness) know(claims []*claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range claims {
		w.claims[c.name] = c
		for _, node := range w.sys.Nodes {
			w.names[volume.AttachmentName(system.DriverName, c.handle, node)] = place{c.handle, node}
		}
	}
}

func (w *witness) start(ctx context.Context) error {
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}} {
		if err := follow(ctx, w.sys.Client, list, func(e watch.Event) { w.see(e, time.Now()) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *witness) see(e watch.Event, now time.Time) {
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
	for _, p := range slices.Concat(slices.Concat(slices.Collect(maps.Values(w.wanted))...), slices.Concat(slices.Collect(maps.Values(w.listed))...)) {
		uses[p] = true
	}
	for _, p := range w.names {
		w.used[p] = turn(w.used[p], uses[p], now)
	}
}

func (w *witness) placesOfPod(pod *corev1.Pod) []place {
	var places []place
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && w.claims[v.PersistentVolumeClaim.ClaimName] != nil {
			places = append(places, place{w.claims[v.PersistentVolumeClaim.ClaimName].handle, pod.Spec.NodeName})
		}
	}
	return places
}

func (w *witness) placesOfNode(node *corev1.Node) []place {
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

// turn begins a spell or ends it.
func turn(spells []spell, on bool, now time.Time) []spell {
	last := len(spells) - 1
	switch open := last >= 0 && spells[last].to.IsZero(); {
	case on && !open:
		return append(spells, spell{from: now})
	case !on && open:
		spells[last].to = now
	}
	return spells
}

// detach is a DELETE of an attachment that was not refused.
type detach struct {
	place
	received, answered time.Time
	by                 string
}

func (d detach) String() string {
	return fmt.Sprintf("%s deleted the attachment of volume %s to %s at %s", d.by, d.volume, d.node, d.received.Local().Format("15:04:05.000"))
}

// detaches in the order in which they were asked for.
func (w *witness) detaches() ([]detach, error) {
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

// how a detach stands to what upstream and its kubelet count on.
type how string

const (
	// free: nobody counted on the volume.
	free how = ""
	// inGap: Hawser's DELETE, of what came to be counted on between its last look and that DELETE. docs/internals/handshake.md names it.
	inGap how = "in the gap between Hawser's check and its DELETE"
	// outOfService: upstream's DELETE, which asks nobody on a node that is out of service.
	outOfService how = "by upstream on a node out of service"
	// blind: Hawser's DELETE, of what had been counted on for longer than Hawser's look may be old.
	blind how = "by Hawser although a pod or the kubelet had counted on it"
)

const (
	// looked is how old what a DELETE of Hawser's rests on may be when it is sent; what the witness sees comes to it late, too.
	looked = time.Second + slack
	slack  = 500 * time.Millisecond
)

func (w *witness) judge(d detach) how {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d.by {
	case system.UpstreamUser:
		// Its cache may be late.
		if slices.ContainsFunc(w.away[d.node], func(s spell) bool { return s.covers(d.received) || s.covers(d.received.Add(-10*slack)) }) {
			return outOfService
		}
	case system.ManagerUser:
		for _, s := range w.used[d.place] {
			switch {
			case !s.covers(d.answered.Add(slack)):
			case s.covers(d.received.Add(-looked)):
				return blind
			default:
				return inGap
			}
		}
	}
	return free
}

// inquiry is what the witness has found out, at one time. The nil one knows of nothing.
type inquiry struct {
	entries  []ledger.Entry
	detaches []detach
	hows     []how
	// since a volume in use was taken from a node, until it was unstaged there or the node rebooted.
	taken map[place][]takenSpell
}

type takenSpell struct {
	spell
	how how
}

func (w *witness) inquire(entries []ledger.Entry) (*inquiry, error) {
	detaches, err := w.detaches()
	if err != nil {
		return nil, err
	}
	i := &inquiry{entries: entries, detaches: detaches, taken: map[place][]takenSpell{}}
	for _, d := range detaches {
		i.hows = append(i.hows, w.judge(d))
	}
	return i, nil
}

// blind are the detaches that must not have been.
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

// soon is how long after a DELETE in the gap a kubelet that had looked before it may come to its call.
const soon = 10 * time.Second

// excuses says which risk a violation comes from: of the last DELETE before it, or of an earlier one from which a mount is left.
func (i *inquiry) excuses(v ledger.Violation) how {
	if i.len() == 0 || v.Method == "ControllerPublishVolume" {
		return free // no DELETE makes a driver publish twice
	}
	for p, spells := range i.taken {
		at := slices.IndexFunc(spells, func(s takenSpell) bool { return p.volume == v.Volume && s.covers(v.Time) })
		if at >= 0 {
			return spells[at].how
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
	i.taken[i.detaches[last].place] = append(i.taken[i.detaches[last].place], takenSpell{i.until(v), i.hows[last]})
	return i.hows[last]
}

// until is the spell from a violation until the volume is unstaged on that node, or the node rebooted.
func (i *inquiry) until(v ledger.Violation) spell {
	s := spell{from: v.Time}
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
