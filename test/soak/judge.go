/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// place is a volume, by its handle, on a node.
type place struct{ volume, node string }

// spell is for how long something lasted; without an end for as long as it lasts.
type spell struct{ from, to time.Time }

func (s spell) covers(t time.Time) bool {
	return t.After(s.from) && (s.to.IsZero() || t.Before(s.to))
}

// judge reads the driver's ledger, and watches every NodeVolumeState. What was done by force is not held against anybody.
type judge struct {
	sys *system.System
	// witness of what upstream does; nil in Replace.
	witness *witness

	mu     sync.Mutex
	claims map[string]*claim // by unique name
	states map[string]*volumesv1alpha1.NodeVolumeState
	// forced is for how long a forced detach was not over: from its evidence until its entry was gone.
	forced map[place]map[types.UID]spell
	// told are the violations that were told of, risks what was done that Coexist does not rule out.
	told    map[string]bool
	risks   map[how][]string
	refused int
	// kept counts what upstream did not delete.
	kept    int
	changes int
	entries int
}

func newJudge(sys *system.System, witness *witness) *judge {
	return &judge{
		witness: witness, risks: map[how][]string{},
		sys: sys, claims: map[string]*claim{}, states: map[string]*volumesv1alpha1.NodeVolumeState{},
		forced: map[place]map[types.UID]spell{}, told: map[string]bool{},
	}
}

// know takes the volumes in that it is about.
func (j *judge) know(claims []*claim) {
	if j.witness != nil {
		j.witness.know(claims)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range claims {
		j.claims[c.volume] = c
	}
}

// start watches until the context ends.
func (j *judge) start(ctx context.Context, fail func(error)) error {
	if j.witness != nil {
		if err := j.witness.start(ctx); err != nil {
			return err
		}
	}
	return follow(ctx, j.sys.Client, &volumesv1alpha1.NodeVolumeStateList{}, func(e watch.Event) { j.see(e, fail) })
}

// follow tells of every change of a kind until the context ends.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, see func(watch.Event)) error {
	watcher, err := c.Watch(ctx, list)
	if err != nil {
		return fmt.Errorf("watching %T: %w", list, err)
	}
	go func() {
		for {
			for e := range watcher.ResultChan() {
				see(e)
			}
			watcher.Stop()
			for {
				if ctx.Err() != nil {
					return
				}
				if watcher, err = c.Watch(ctx, list); err == nil {
					break
				}
				wait(ctx, time.Second)
			}
		}
	}()
	return nil
}

func (j *judge) see(e watch.Event, fail func(error)) {
	nvs, ok := e.Object.(*volumesv1alpha1.NodeVolumeState)
	if !ok {
		return
	}
	j.mu.Lock()
	j.changes++
	if e.Type == watch.Deleted {
		nvs = &volumesv1alpha1.NodeVolumeState{ObjectMeta: nvs.ObjectMeta}
	}
	j.states[nvs.Name] = nvs
	j.noteForced(nvs)
	wrong := j.usableTwice()
	j.mu.Unlock()
	for _, w := range wrong {
		fail(w)
	}
}

// noteForced takes down which detaches were forced, and which are over.
func (j *judge) noteForced(nvs *volumesv1alpha1.NodeVolumeState) {
	stands := map[types.UID]bool{}
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if e.Evidence == nil || e.Evidence.Type == volumesv1alpha1.EvidenceAgentReleased {
			continue
		}
		stands[e.AttachmentUID] = true
		p := place{e.VolumeHandle, nvs.Name}
		if _, known := j.forced[p][e.AttachmentUID]; !known {
			if j.forced[p] == nil {
				j.forced[p] = map[types.UID]spell{}
			}
			// The time stands there in whole seconds.
			j.forced[p][e.AttachmentUID] = spell{from: e.Evidence.Time.Add(-time.Second)}
		}
	}
	for p, spells := range j.forced {
		for uid, s := range spells {
			if p.node == nvs.Name && s.to.IsZero() && !stands[uid] {
				spells[uid] = spell{s.from, time.Now()}
			}
		}
	}
}

// usableTwice: the entry is Attached and the agent uses it, on two nodes.
func (j *judge) usableTwice() []error {
	usable := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(j.states)) {
		nvs := j.states[node]
		for i := range nvs.Spec.Attachments {
			e := &nvs.Spec.Attachments[i]
			line := handshake.VolumeOf(nvs, e.VolumeName)
			if c := j.claims[e.VolumeName]; c != nil && c.exclusive && e.State == volumesv1alpha1.AttachmentAttached && line != nil && line.InUse && line.AttachmentUID == e.AttachmentUID {
				usable[e.VolumeName] = append(usable[e.VolumeName], node)
			}
		}
	}
	var wrong []error
	for volume, nodes := range usable {
		if len(nodes) > 1 {
			wrong = append(wrong, fmt.Errorf("%s is usable on %q", volume, nodes))
		}
	}
	return wrong
}

// look reads the ledger and, in Coexist, who deleted what, and tells of each violation once.
func (j *judge) look(fail func(error)) {
	entries, err := ledger.Read(j.sys.BackingDir())
	if err != nil {
		fail(err)
		return
	}
	found := stagedTwice(entries)
	for _, rule := range []func([]ledger.Entry) []ledger.Violation{ledger.PublishedTwice, ledger.UnpublishedWhileStaged, ledger.UsedUnattached} {
		found = append(found, rule(entries)...)
	}
	slices.SortStableFunc(found, func(a, b ledger.Violation) int { return int(a.Seq - b.Seq) })
	var upstream *inquiry
	if j.witness != nil {
		if upstream, err = j.witness.inquire(entries); err != nil {
			fail(err)
			return
		}
	}
	for _, w := range j.weigh(entries, found, upstream) {
		fail(w)
	}
}

// weigh returns what is wrong and was not told of yet, and notes what is a risk.
func (j *judge) weigh(entries []ledger.Entry, found []ledger.Violation, upstream *inquiry) []error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.refused = len(entries), refused(entries)
	var wrong []error
	tell := func(what string) {
		if !j.told[what] {
			j.told[what] = true
			wrong = append(wrong, errors.New(what))
		}
	}
	j.risks = map[how][]string{}
	for _, v := range found {
		what := fmt.Sprintf("ledger, %s: %s", v.Time.Format("15:04:05.000"), v)
		switch risk := upstream.excuses(v); {
		case j.excused(v):
		case risk != free:
			j.risks[risk] = append(j.risks[risk], what)
		default:
			tell(what)
		}
	}
	for _, d := range upstream.blind() {
		if !j.forcedAt(d.place, d.received) {
			tell(fmt.Sprintf("%s, %s", d, blind))
		}
	}
	return wrong
}

// excused: the volume was being forced away from that node, or from the one that still had it staged.
func (j *judge) excused(v ledger.Violation) bool {
	for p := range j.forced {
		if p.volume == v.Volume && j.forcedAt(p, v.Time) {
			return true
		}
	}
	return false
}

func (j *judge) forcedAt(p place, t time.Time) bool {
	for _, s := range j.forced[p] {
		if s.covers(t) {
			return true
		}
	}
	return false
}

// refused counts the publishes that the driver itself refused, because the volume was published elsewhere.
func refused(entries []ledger.Entry) int {
	n := 0
	for _, e := range entries {
		if e.Phase == ledger.Effect && e.Method == "ControllerPublishVolume" && e.Code == codes.FailedPrecondition.String() {
			n++
		}
	}
	return n
}

// stagedTwice returns the stages of a volume for a single node that came about while it was staged on another one.
func stagedTwice(entries []ledger.Entry) []ledger.Violation {
	staged := map[place]bool{}
	var found []ledger.Violation
	for _, e := range entries {
		p := place{e.Volume, e.Node}
		done := e.Phase == ledger.Effect && e.Code == "OK"
		switch {
		case done && e.Method == "NodeStageVolume":
			for other := range staged {
				if other.volume == e.Volume && other.node != e.Node && e.AccessMode != "MULTI_NODE_MULTI_WRITER" {
					found = append(found, ledger.Violation{Entry: e, Reason: "is staged on node " + other.node})
				}
			}
			staged[p] = true
		case done && e.Method == "NodeUnstageVolume":
			delete(staged, p)
		case e.Phase == ledger.Note && e.Method == ledger.Reboot:
			maps.DeleteFunc(staged, func(p place, _ bool) bool { return p.node == e.Node })
		}
	}
	return found
}

// keptByUpstream notes that upstream's controller did not delete so many attachments that nobody wanted any more.
func (j *judge) keptByUpstream(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kept += n
}

func (j *judge) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	forced := 0
	for _, spells := range j.forced {
		forced += len(spells)
	}
	text := fmt.Sprintf("%d changes of nodes' states and %d lines of the ledger were judged, %d detaches were forced", j.changes, j.entries, forced)
	if j.witness == nil {
		return text
	}
	text += fmt.Sprintf(", the driver's refusal was the last guard %d times", j.refused)
	if j.kept > 0 {
		text += fmt.Sprintf(", upstream kept %d attachments that nobody wanted", j.kept)
	}
	for _, risk := range slices.Sorted(maps.Keys(j.risks)) {
		text += fmt.Sprintf(", a volume in use was taken %d times %s", len(j.risks[risk]), risk)
	}
	return text
}

// tellRisks says what was done that Coexist does not rule out.
func (j *judge) tellRisks(say func(string, ...any)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, risk := range slices.Sorted(maps.Keys(j.risks)) {
		for _, what := range j.risks[risk] {
			say("RISK, %s: %s", risk, what)
		}
	}
}
