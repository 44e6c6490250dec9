/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// volume is what this process keeps of one volume between looks. The queue sees to it that one goroutine at a
// time looks at it; what others touch is behind mu.
type volume struct {
	name     string
	record   *Record
	failures failures
	// known intents, whose lastError of an earlier process was taken over.
	seeded map[types.UID]bool
	// unprotected: a mount of an attachment that was taken away could not be shut down.
	unprotected bool
	// slow is the operation whose call takes so long that users are told.
	slow string
	// unsaved: uses were ended that the disk still names. Nobody must be told before it knows: whoever is told may let the
	// intent go, and a process that comes after would take the use for an orphan.
	unsaved bool
	// phases are for the metrics only.
	phases phases

	mu     sync.Mutex
	hung   <-chan struct{}
	hungOp string
	nudges map[nudge]bool
	figure *figures
	// reading: the figures are being read.
	reading bool
	// lost are the mounts that were reported as removed by somebody else.
	lost []string
	// awaits: something waits for a change of the mount table.
	awaits bool
	// inherited are the devices of a use of the kubelet that has ended while the agent uses the volume.
	inherited []mount.Device
}

// nudge says what has changed for an act that waits for it.
type nudge string

const (
	nudgeDrivers nudge = "drivers"
	nudgeMounts  nudge = "mounts"
	// nudgeHolder: a process that held the volume's device has ended.
	nudgeHolder nudge = "holder"
)

func newVolume(name string) *volume {
	return &volume{name: name, failures: failures{}, seeded: map[types.UID]bool{}, nudges: map[nudge]bool{}}
}

func (v *volume) hangs(finished <-chan struct{}, operation string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hung, v.hungOp = finished, operation
}

// hanging returns the operation whose call ignores its deadline, or "".
func (v *volume) hanging() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hung == nil {
		return ""
	}
	select {
	case <-v.hung:
		v.hung = nil
		return ""
	default:
		return v.hungOp
	}
}

// waitsForMounts says whether a change of the mount table may let something go on.
func (v *volume) waitsForMounts() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.awaits
}

// setLost notes the mounts that are not there any more, and reports whether any of them is news.
func (v *volume) setLost(paths []string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	fresh := slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(v.lost, p) })
	v.lost = paths
	return fresh
}

// updateAwaits notes whether a change of the mount table may let something go on.
func (v *volume) updateAwaits() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaits = false
	for _, f := range v.failures {
		v.awaits = v.awaits || f.awaitsMounts()
	}
}

func (v *volume) setFigures(f *figures) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.figure = f
}

// inherit has the agent's own release ask about the devices too.
func (v *volume) inherit(devices []mount.Device) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inherited = append(v.inherited, devices...)
}

// takeInherited moves them to the record, which must be there.
func (v *volume) takeInherited(boot string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.inherited {
		v.record.see(d, boot)
	}
	v.inherited = nil
}

// beginStats says whether no reading of the volume's figures is going on.
func (v *volume) beginStats() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	begun := !v.reading
	v.reading = true
	return begun
}

func (v *volume) endStats() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reading = false
}

func (v *volume) nudge(n nudge) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nudges[n] = true
}

// takeNudges lets the failures that waited for what has changed try again at once.
func (v *volume) takeNudges() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.failures {
		if f.waits && v.nudges[nudgeDrivers] || f.awaitsMounts() && v.nudges[nudgeMounts] || f.awaitsHolder() && v.nudges[nudgeHolder] {
			f.waits, f.NextAttemptTime = false, nil
		}
	}
	clear(v.nudges)
}

// snapshot is what a report needs to know of the volume beside the facts.
func (v *volume) snapshot() snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return snapshot{
		name: v.name, record: v.record, failures: v.failures, unprotected: v.unprotected, slow: v.slow, figures: v.figure, lost: v.lost,
	}
}

// seed takes over the attempts that an earlier process counted, so that a restart does not forget the backoff.
func (v *volume) seed(intents []*volumesv1alpha1.VolumeAttachmentIntent, now time.Time) {
	maps.DeleteFunc(v.seeded, func(uid types.UID, _ bool) bool {
		return !slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == uid })
	})
	for _, i := range intents {
		e := i.Status.LastError
		if v.seeded[i.UID] {
			continue
		}
		v.seeded[i.UID] = true
		if e == nil || i.Generation != i.Status.ObservedGeneration {
			continue
		}
		for _, a := range []act{
			{verb: doStage}, {verb: doUnstage}, {verb: doExpand},
			{verb: doPublish, intent: i.UID}, {verb: doUnpublish, intent: i.UID},
		} {
			if steps[a.verb].operation != e.Operation || v.failures[a] != nil {
				continue
			}
			failed := &failure{OperationError: *e.DeepCopy(), reason: failedReason[e.Operation], announced: true}
			// A clock that was set back must not keep the volume waiting longer than the backoff would.
			if n := failed.NextAttemptTime; n != nil && n.Sub(now) > status.LongestBackoff {
				failed.NextAttemptTime = nil
			}
			v.failures[a] = failed
		}
	}
}
