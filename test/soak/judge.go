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

// interval is a time span. Without an end it has not ended.
type interval struct{ from, to time.Time }

func (s interval) covers(t time.Time) bool {
	return t.After(s.from) && (s.to.IsZero() || t.Before(s.to))
}

// judge reads the driver's ledger and watches every NodeVolumeState. It excuses effects of a forced detach.
type judge struct {
	sys *system.System
	// observer of upstream; nil in Replace.
	observer *observer

	mu     sync.Mutex
	claims map[string]*claim // by unique name
	states map[string]*volumesv1alpha1.NodeVolumeState
	// forced is how long a forced detach lasted: from its evidence until its entry was gone.
	forced map[place]map[types.UID]interval
	// sessions are those of the nodes' agents when the nodes were lost. A later one contradicts a taint.
	sessions map[string]int64
	// reported are the violations so far, risks the events that Coexist does not prevent.
	reported map[string]bool
	risks    map[how][]string
	refused  int
	// kept counts attachments that upstream did not delete.
	kept    int
	changes int
	entries int
}

func newJudge(sys *system.System, observer *observer) *judge {
	return &judge{
		observer: observer, risks: map[how][]string{},
		sys: sys, claims: map[string]*claim{}, states: map[string]*volumesv1alpha1.NodeVolumeState{},
		forced: map[place]map[types.UID]interval{}, reported: map[string]bool{}, sessions: map[string]int64{},
	}
}

// lost notes that a node's agent was killed, which does not come back before the node does.
func (j *judge) lost(node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if nvs := j.states[node]; nvs != nil {
		j.sessions[node] = nvs.Status.Protocol.Session
	}
}

// know sets the volumes to judge.
func (j *judge) know(claims []*claim) {
	if j.observer != nil {
		j.observer.know(claims)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range claims {
		j.claims[c.volume] = c
	}
}

// start watches until the context ends.
func (j *judge) start(ctx context.Context, fail func(error)) error {
	if j.observer != nil {
		if err := j.observer.start(ctx); err != nil {
			return err
		}
	}
	return follow(ctx, j.sys.Client, &volumesv1alpha1.NodeVolumeStateList{}, func(e watch.Event) { j.see(e, fail) })
}

// follow reports every change of a kind until the context ends.
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
	wrong := j.noteForced(nvs)
	if was := j.states[nvs.Name]; was != nil {
		wrong = append(wrong, droppedOfOthers(was, nvs)...)
	}
	j.states[nvs.Name] = nvs
	wrong = append(wrong, j.usableTwice()...)
	j.mu.Unlock()
	for _, w := range wrong {
		fail(w)
	}
}

// noteForced records which detaches were forced, and which have ended. It returns those that a taint forced although
// the agent was running.
func (j *judge) noteForced(nvs *volumesv1alpha1.NodeVolumeState) []error {
	var wrong []error
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
				j.forced[p] = map[types.UID]interval{}
			}
			// The API server truncates the time to seconds.
			j.forced[p][e.AttachmentUID] = interval{from: e.Evidence.Time.Add(-time.Second)}
			lost, known := j.sessions[nvs.Name]
			if e.Evidence.Type == volumesv1alpha1.EvidenceOutOfServiceTaint &&
				(!known || nvs.Status.Protocol.Session > lost) {
				wrong = append(wrong, fmt.Errorf("%s is forced away from %s by a taint, although its agent is in session %d",
					e.VolumeHandle, nvs.Name, nvs.Status.Protocol.Session))
			}
		}
	}
	for p, intervals := range j.forced {
		for uid, s := range intervals {
			if p.node == nvs.Name && s.to.IsZero() && !stands[uid] {
				intervals[uid] = interval{s.from, time.Now()}
			}
		}
	}
	return wrong
}

// usableTwice finds volumes whose entry is Attached and in use on two nodes.
func (j *judge) usableTwice() []error {
	usable := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(j.states)) {
		nvs := j.states[node]
		for i := range nvs.Spec.Attachments {
			e := &nvs.Spec.Attachments[i]
			line := handshake.VolumeOf(nvs, e.VolumeName)
			if c := j.claims[e.VolumeName]; c != nil && c.exclusive && e.State == volumesv1alpha1.AttachmentAttached &&
				line != nil && line.InUse && line.AttachmentUID == e.AttachmentUID {
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

// check reads the ledger and, in Coexist, the deletions of attachments. It reports each violation once.
func (j *judge) check(fail func(error)) {
	entries, err := ledger.Read(j.sys.BackingDir())
	if err != nil {
		fail(err)
		return
	}
	found := stagedTwice(entries)
	for _, rule := range []func([]ledger.Entry) []ledger.Violation{ledger.PublishedTwice, ledger.UnpublishedWhileStaged,
		ledger.UsedUnattached} {
		found = append(found, rule(entries)...)
	}
	slices.SortStableFunc(found, func(a, b ledger.Violation) int { return int(a.Seq - b.Seq) })
	var upstream *inquiry
	if j.observer != nil {
		if upstream, err = j.observer.inquire(entries); err != nil {
			fail(err)
			return
		}
	}
	for _, w := range j.weigh(entries, found, upstream) {
		fail(w)
	}
}

// weigh returns new violations and records risks.
func (j *judge) weigh(entries []ledger.Entry, found []ledger.Violation, upstream *inquiry) []error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.refused = len(entries), refused(entries)
	var wrong []error
	tell := func(what string) {
		if !j.reported[what] {
			j.reported[what] = true
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

// excused reports whether a forced detach from that node, or from the node that had the volume staged, was in progress.
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

// refused counts the publishes that the driver refused because the volume was published elsewhere.
func refused(entries []ledger.Entry) int {
	n := 0
	for _, e := range entries {
		if e.Phase == ledger.Effect && e.Method == "ControllerPublishVolume" && e.Code == codes.FailedPrecondition.String() {
			n++
		}
	}
	return n
}

// stagedTwice returns the stages of a single-node volume that took effect while it was staged on another node.
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

// keptByUpstream counts attachments that nothing needed and that upstream's controller did not delete.
func (j *judge) keptByUpstream(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kept += n
}

func (j *judge) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	forced := 0
	for _, intervals := range j.forced {
		forced += len(intervals)
	}
	text := fmt.Sprintf("judged %d changes of node states and %d lines of the ledger, %d detaches were forced",
		j.changes, j.entries, forced)
	if j.observer == nil {
		return text
	}
	text += fmt.Sprintf(", the driver's refusal was the last guard %d times", j.refused)
	if j.kept > 0 {
		text += fmt.Sprintf(", upstream kept %d attachments that nothing needed", j.kept)
	}
	for _, risk := range slices.Sorted(maps.Keys(j.risks)) {
		text += fmt.Sprintf(", a volume in use was taken %d times %s", len(j.risks[risk]), risk)
	}
	return text
}

// reportRisks logs the events that Coexist does not prevent.
func (j *judge) reportRisks(say func(string, ...any)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, risk := range slices.Sorted(maps.Keys(j.risks)) {
		for _, what := range j.risks[risk] {
			say("RISK, %s: %s", risk, what)
		}
	}
}
