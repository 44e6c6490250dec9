/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// Volume is what this process keeps of one volume between reconciles. The queue has one goroutine at a time reconcile
// it; what other goroutines use is behind mu.
type Volume struct {
	Name     string
	Record   *record.Record
	Failures plan.Failures
	// known intents, whose lastError of an earlier process was taken over.
	seeded map[types.UID]bool
	// Unprotected: a mount of an attachment that was taken away could not be shut down.
	Unprotected bool
	// slow describes a call that takes so long that the status reports it.
	slow string
	// Unsaved: uses have ended that the record on disk still names. No report may come before the record: once the
	// manager has seen the report, it may remove the finalizer, and a later process would take the use for an orphan.
	Unsaved bool
	// stillNext reports whether the step that is going on is still the one to run.
	stillNext func(plan.Facts) bool
	// Phases are for the metrics only.
	Phases plan.Phases

	// remounts is how often the volume was unmounted because it was sick, and nextRemount when it may be again.
	remounts    int32
	nextRemount time.Time

	// awaitsDisks: the volume, whose disks are dead, is examined again soon.
	awaitsDisks atomic.Bool

	mu sync.Mutex
	// found by the last examination of the stage with the number stages; nil before the first one.
	found  *examination
	stages int
	// announced is the cause of a sickness that an event was sent about.
	announced string
	hung      <-chan struct{}
	hungOp    string
	changes   map[ChangeKind]bool
	figure    *report.Figures
	// reading is the number of the stage whose figures are being read, and problems what the driver reported of it.
	reading  *int
	problems *[]volumesv1alpha1.HealthProblem
	// lost are the mounts that were reported as removed by another program.
	lost []string
	// shortened: until when the end of a process of a pod does not shorten a wait again.
	shortened time.Time
	// awaitsMounts: something waits for a change of the mount table.
	awaitsMounts bool
	// inherited are the devices of a use of the kubelet that has ended while the agent uses the volume.
	inherited []mount.Device
	// requeued is signalled when the volume is to be reconciled.
	requeued chan struct{}
}

// ChangeKind is what has changed for a step that waits for it.
type ChangeKind string

const (
	// DriversChanged: a driver has registered or gone.
	DriversChanged ChangeKind = "drivers"
	// MountsChanged: the mount table, or what the kubelet has of the volume, has changed.
	MountsChanged ChangeKind = "mounts"
	// HolderEnded: a process that held the volume's device has ended.
	HolderEnded ChangeKind = "holder"
)

// NewVolume returns a volume that nothing is known of.
func NewVolume(name string) *Volume {
	return &Volume{Name: name, Failures: plan.Failures{}, seeded: map[types.UID]bool{}, changes: map[ChangeKind]bool{},
		requeued: make(chan struct{}, 1)}
}

// NoteRequeue has a step that is interruptible find out whether it is still the next one.
func (v *Volume) NoteRequeue() {
	select {
	case v.requeued <- struct{}{}:
	default:
	}
}

func (v *Volume) setHanging(finished <-chan struct{}, operation string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hung, v.hungOp = finished, operation
}

// HangingCall returns the operation whose call ignores its deadline, or "".
func (v *Volume) HangingCall() string {
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

// AwaitsMounts reports whether a change of the mount table may let something go on.
func (v *Volume) AwaitsMounts() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.awaitsMounts
}

// SetLost notes the mounts that are not there any more, and reports whether any of them is news.
func (v *Volume) SetLost(paths []string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	fresh := slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(v.lost, p) })
	v.lost = paths
	return fresh
}

// UpdateAwaits notes whether a change of the mount table may let something go on.
func (v *Volume) UpdateAwaits() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaitsMounts = false
	for _, f := range v.Failures {
		v.awaitsMounts = v.awaitsMounts || f.AwaitsMounts()
	}
}

// SetFigures notes the figures that the driver reported.
func (v *Volume) SetFigures(f *report.Figures) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.figure = f
}

// Inherit has the agent's own release ask about the devices too.
func (v *Volume) Inherit(devices []mount.Device) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inherited = append(v.inherited, devices...)
}

// RecordInherited moves them to the record, which must be there, and reports whether there were any.
func (v *Volume) RecordInherited(boot string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := len(v.inherited) > 0
	for _, d := range v.inherited {
		v.Record.AddDevice(d, boot)
	}
	v.inherited = nil
	return found
}

// BeginStats begins to read the volume's figures; it reports false if that goes on already.
func (v *Volume) BeginStats() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reading != nil {
		return false
	}
	v.reading = new(v.stages)
	return true
}

// EndStats ends what BeginStats began.
func (v *Volume) EndStats() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reading = nil
}

// NoteChange has the next reconcile retry what waits for the change.
func (v *Volume) NoteChange(n ChangeKind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes[n] = true
}

// ApplyChanges lets the failures that waited for what has changed try again: at once, or soon where a pod decides how
// often it changes.
func (v *Volume) ApplyChanges(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.Failures {
		switch {
		case f.AwaitsEvent && v.changes[DriversChanged] || f.AwaitsMounts() && v.changes[MountsChanged]:
			f.AwaitsEvent, f.NextAttemptTime = false, nil
		case f.AwaitsHolder() && v.changes[HolderEnded]:
			v.retryNow(f, now)
		}
	}
	clear(v.changes)
}

// Figures are those that the driver reported last; nil if it has not. Any goroutine may ask, such as one of a scrape.
func (v *Volume) Figures() *report.Figures {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.figure
}

// Snapshot is what a report needs to know of the volume beside the facts. Only the volume's own reconcile may ask.
func (v *Volume) Snapshot() report.Snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return report.Snapshot{
		Name: v.Name, Record: v.Record, Failures: v.Failures, Unprotected: v.Unprotected, Slow: v.slow,
		Figures: v.figure, Lost: v.lost,
	}
}

// Seed takes over the attempts that an earlier process counted, so that a restart does not forget the backoff.
func (v *Volume) Seed(intents []*volumesv1alpha1.VolumeAttachmentIntent, now time.Time) {
	maps.DeleteFunc(v.seeded, func(uid types.UID, _ bool) bool {
		return !slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.UID == uid
		})
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
		for kind, s := range steps {
			a := plan.Step{Kind: kind}
			if s.perIntent {
				a.Intent = i.UID
			}
			if !s.seeded || s.operation != e.Operation || v.Failures[a] != nil {
				continue
			}
			failed := &failure.Failure{OperationError: *e.DeepCopy(), Reason: failure.Reasons[e.Operation],
				Announced: true}
			// A clock that was set back must not keep the volume waiting longer than the backoff would.
			if n := failed.NextAttemptTime; n != nil && n.Sub(now) > status.LongestBackoff {
				failed.NextAttemptTime = nil
			}
			v.Failures[a] = failed
		}
	}
}

// Next picks the first step of the plan that need not wait. Nothing is tried twice in one reconcile, so a driver that
// says done and does nothing cannot keep the agent busy.
func (v *Volume) Next(f plan.Facts, tried map[plan.Step]bool, now time.Time) (plan.Step, bool) {
	for _, a := range plan.Of(f) {
		if !tried[a] && !AwaitsConfirmation(f, a) && !v.Failures[a].Waiting(inputs(f, a), now) {
			return a, true
		}
	}
	return plan.Step{}, false
}

// RequeueAfter is how long until something that waits may be tried; zero when only an event can help.
func (v *Volume) RequeueAfter(f plan.Facts, tried map[plan.Step]bool, now time.Time) time.Duration {
	var rest time.Duration
	for _, a := range plan.Of(f) {
		d := time.Duration(0)
		switch failed := v.Failures[a]; {
		case AwaitsConfirmation(f, a): // the confirmation wakes
		case failed != nil && failed.NextAttemptTime != nil:
			d = max(failed.NextAttemptTime.Sub(now), time.Millisecond)
		case tried[a] && !failed.Waiting(inputs(f, a), now):
			d = status.FirstBackoff // it succeeded and is to be done again, or the facts had changed
		}
		if d > 0 && (rest == 0 || d < rest) {
			rest = d
		}
	}
	return rest
}

// Prune drops the failures of what is not planned any more.
func (v *Volume) Prune(f plan.Facts) {
	if f.CallHangs || f.WaitsForSession() {
		return
	}
	planned := map[plan.Step]bool{}
	for _, a := range plan.Of(f) {
		planned[a] = true
	}
	maps.DeleteFunc(v.Failures, func(a plan.Step, _ *failure.Failure) bool {
		return !planned[a] &&
			!follows(f.Record, a, planned)
	})
}

// follows: the step will be planned when what is planned before it is done.
func follows(r *record.Record, a plan.Step, planned map[plan.Step]bool) bool {
	if steps[a.Kind].perIntent && (r == nil || r.UseOf(a.Intent) == nil) {
		return false
	}
	return slices.ContainsFunc(steps[a.Kind].follows, func(k plan.Kind) bool { return planned[plan.Step{Kind: k}] })
}

// AwaitsConfirmation reports whether the step waits until the manager has confirmed the session: a record that names
// the volume as in use may be of the time before the volume was forced away, and what the API holds too.
func AwaitsConfirmation(f plan.Facts, a plan.Step) bool {
	return f.Unconfirmed && steps[a.Kind].session
}
