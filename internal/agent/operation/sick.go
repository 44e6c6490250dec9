/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/mount/scsi"
	"github.com/hawser-io/hawser/internal/status"
)

var remountStep = step{
	operation: "stage", event: eventFailedMount, logged: true, session: true, reportFirst: true, inputs: podInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.remount(ctx, v, f)
	},
}

// Examine reports whether the volume is sick. What is new requeues the volume, whose record has it from then on. r is
// the record or a copy of it.
func (env *Environment) Examine(ctx context.Context, v *Volume, r *record.Record) bool {
	stage := v.stageCount()
	found, known := env.examineStage(ctx, r)
	if !known {
		return r.Sick != nil
	}
	if found.deadDisks {
		env.awaitDisks(v)
	}
	if v.noteExamination(stage, found) && causeOf(r.Sick) != causeOf(found.sick) {
		env.Requeue(v.Name)
	}
	return found.sick != nil
}

// examination is what was found of a volume.
type examination struct {
	// sick is nil for a volume that works.
	sick *record.Sickness
	// errors that the filesystem has counted.
	errors *int64
	// deadDisks: the volume's disks are dead.
	deadDisks bool
}

// examineStage returns false where it is not known whether the volume works.
func (env *Environment) examineStage(ctx context.Context, r *record.Record) (found examination, known bool) {
	paths := examinedPaths(r, env.Now().BootID)
	if r.Stage.Seq != 0 { // a device node is staged, from which a driver publishes
		paths = append(paths, r.Stage.Path)
	}
	for _, path := range paths {
		h, err := env.Mounts.Examine(ctx, path)
		if errors.Is(err, mount.ErrNotMounted) {
			continue // a mount that is lost is made again
		}
		env.awaitAnswer(r.VolumeName, err)
		found.errors, found.deadDisks = h.Errors, len(h.DeadDisks) > 0
		if found.sick, known = diagnose(h, err, r.Stage.Errors); !known {
			env.Log.V(1).Info("volume not examined", "volume", r.VolumeName, "path", path, "error", err.Error())
			return found, false
		}
		if found.sick == nil {
			found.sick = lostNumber(r, path, h.Node)
		}
		if found.sick != nil {
			found.sick.Since = env.Clock.Now()
			break
		}
	}
	return found, true
}

// awaitAnswer has the volume examined again once an access to it that did not answer has ended. Of all that wait for
// one access, the first one's error has the end of its context.
func (env *Environment) awaitAnswer(volume string, err error) {
	var pending *mount.PendingError
	if !errors.As(err, &pending) || pending.Err == nil {
		return
	}
	go func() {
		select {
		case <-pending.Ended:
			env.ExamineAgain(volume)
		case <-env.Lifetime.Done():
		}
	}()
}

// diskPeriod is how soon a volume with dead disks is examined again: the kernel has no notice of their return.
const diskPeriod = 10 * time.Second

func (env *Environment) awaitDisks(v *Volume) {
	if !v.awaitsDisks.CompareAndSwap(false, true) {
		return
	}
	soon := env.Clock.After(diskPeriod)
	go func() {
		select {
		case <-soon:
			v.awaitsDisks.Store(false)
			env.ExamineAgain(v.Name)
		case <-env.Lifetime.Done():
		}
	}()
}

// examinedPaths are the mounts of the volume, also those that could not be undone. What is staged again after a person
// has unmounted it may work where a publication of before does not.
func examinedPaths(r *record.Record, boot string) []string {
	var paths []string
	if s := r.Stage; !r.Block() && s.Phase != record.PhaseNone && s.BootID == boot && s.Source != "" {
		paths = append(paths, s.Path)
	}
	for _, u := range r.Uses {
		undone := u.Phase == record.PhaseUncertain && u.Source != ""
		if (u.Phase == record.PhaseDone || undone) && u.BootID == boot {
			paths = append(paths, u.Target)
			// The agent's bind of all of it keeps what the driver mounted first, which may have died since.
			if u.Target != u.Path && u.Type == volumesv1alpha1.PublicationMount && u.SubPath() == "" {
				paths = append(paths, u.Path)
			}
		}
	}
	return paths
}

// examineUndone finds out whether the driver could not undo something because the volume does not answer, and returns
// the driver's error.
func (env *Environment) examineUndone(ctx context.Context, v *Volume, err error) error {
	if driver.IsUncertain(err) {
		env.Examine(ctx, v, v.Record)
	}
	return err
}

// diagnose returns why a volume does not work, nil if it does, and false if that is not known. The filesystem had
// counted earlier errors when it was staged.
func diagnose(h mount.Health, err error, earlier *int64) (*record.Sickness, bool) {
	var pending *mount.PendingError
	switch {
	case errors.Is(err, context.Canceled):
		return nil, false
	case errors.As(err, &pending):
		return &record.Sickness{Cause: fmt.Sprintf("it does not answer: an access to it runs since %s",
			pending.Call.Since.UTC().Format(time.RFC3339))}, true
	case len(h.DeadDisks) > 0:
		// A disk that is still there is not staged again: to drivers a disk that cannot be read may seem empty.
		there := slices.ContainsFunc(h.DeadDisks, func(d scsi.DeadDisk) bool { return !d.Removed() })
		return &record.Sickness{Remountable: !there,
			Cause: fmt.Sprintf("its block device does not answer: %v", h.DeadDisks)}, true
	case mount.Corrupted(err):
		return &record.Sickness{Cause: "an access to it fails: " + err.Error(), Remountable: true}, true
	case err != nil:
		return nil, false
	case h.DeviceGone:
		return &record.Sickness{Cause: "its block device is gone from the node", Remountable: true}, true
	case h.Failed != "":
		return &record.Sickness{Remountable: true,
			Cause: fmt.Sprintf("its filesystem takes no more writes since an error (%s)", h.Failed)}, true
	case h.Errors != nil && earlier != nil && *h.Errors > *earlier:
		return &record.Sickness{Cause: "its filesystem has counted errors since it was staged", Remountable: true}, true
	}
	return nil, true
}

// noteErrorCount notes how many errors the filesystem has counted already when it is staged: they outlive the mount.
func (env *Environment) noteErrorCount(ctx context.Context, s *record.Stage) {
	if h, err := env.Mounts.Examine(ctx, s.Path); err == nil {
		s.Errors = h.Errors
	}
}

// remount unmounts a volume that is sick, so that it is staged again, if nothing uses it: no pod, as the plan has it,
// and no process. Whatever fails is tried again with the backoff, and so is a volume that falls sick again.
func (env *Environment) remount(ctx context.Context, v *Volume, f plan.Facts) error {
	r, now := v.Record, env.Clock.Now()
	if now.Before(v.nextRemount) {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonVolumeSick, RetryAt: v.nextRemount,
			Message: fmt.Sprintf("it was staged again %d times and is sick again, the next time is at %s", v.remounts,
				v.nextRemount.UTC().Format(time.RFC3339))}
	}
	for _, path := range examinedPaths(r, env.Now().BootID) {
		users, err := env.Mounts.Users(ctx, path)
		if err != nil {
			return &failure.Problem{Reason: volumesv1alpha1.ReasonVolumeSick, Err: err,
				Message: "it is not staged again, because it is not known whether a process uses it"}
		}
		if len(users) > 0 {
			held := &mount.HeldError{Device: mount.Device{Path: path}, Holders: users}
			env.Holders.Await(v.Name, held)
			return &failure.Problem{Reason: volumesv1alpha1.ReasonVolumeSick,
				Message: fmt.Sprintf("it is staged again once nothing uses it: %v", held)}
		}
	}
	if err := env.checkReadable(ctx, r); err != nil {
		return err
	}
	v.remounts++
	v.nextRemount = now.Add(status.Backoff(v.remounts))
	for i := range r.Uses {
		if err := env.withdraw(ctx, v, f, &r.Uses[i]); err != nil {
			return err
		}
	}
	return env.unstage(ctx, v, f)
}

// AnnounceSick sends an event to each intent that wants the volume when it falls sick.
func (env *Environment) AnnounceSick(v *Volume, f plan.Facts) {
	if f.Record == nil || !v.sickIsNews(causeOf(f.Record.Sick)) || f.Record.Sick == nil {
		return
	}
	env.Log.Info("volume is sick", "volume", v.Name, "cause", f.Record.Sick.Cause)
	for _, i := range f.Wanting() {
		env.Event(i, corev1.EventTypeWarning, volumesv1alpha1.ReasonVolumeSick, "Verify", f.Record.Sick.String())
	}
}

// TakeHealth moves what the driver has reported to the record. If it is news, each intent that wants the volume gets an
// event, and so does each pod that has it: the kubelet asks for no health of inline volumes.
func (env *Environment) TakeHealth(v *Volume, f plan.Facts) {
	problems := v.reported()
	if f.Record == nil || problems == nil {
		return
	}
	next, changed := report.NextHealth(f.Record.Health, *problems, env.Clock.Now())
	if !changed {
		return
	}
	f.Record.Health = next
	eventType, reason, note := corev1.EventTypeNormal, EventVolumeHealthy, "the driver reports no problem any more"
	if next != nil {
		eventType, reason, note = corev1.EventTypeWarning, EventVolumeUnhealthy, UnhealthyNote(next)
	}
	env.Log.Info("health of volume changed", "volume", v.Name, "health", note)
	for _, i := range f.Wanting() {
		env.Event(i, eventType, reason, "Verify", note)
	}
	for _, b := range f.Pods {
		if b.Pod.Name != "" { // otherwise its record was lost
			env.Recorder.Eventf(b.Pod.Object(), IntentObject(b.Intent), eventType, reason, "Verify", "%s",
				status.ShortenNote(note))
		}
	}
}

// UnhealthyNote is the note of an event about the health of a volume.
func UnhealthyNote(h *volumesv1alpha1.Health) string {
	return "the driver reports " + report.DescribeHealth(h)
}

// NoteHealth notes what the driver has reported since BeginStats, unless the volume was unstaged meanwhile.
func (v *Volume) NoteHealth(problems []volumesv1alpha1.HealthProblem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reading != nil && *v.reading == v.stages {
		v.problems = &problems
	}
}

// reported is what the driver has reported last; nil if it has reported nothing of this stage.
func (v *Volume) reported() *[]volumesv1alpha1.HealthProblem {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.problems
}

// stageCount numbers the stages of the volume, so that the examination of an earlier one counts no more.
func (v *Volume) stageCount() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stages
}

// noteExamination notes what was found of the stage with that number, unless it is not there any more.
func (v *Volume) noteExamination(stage int, found examination) (noted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if stage == v.stages {
		v.found = &found
	}
	return stage == v.stages
}

func causeOf(s *record.Sickness) string {
	if s == nil {
		return ""
	}
	return s.Cause
}

// RecordExamination moves what was found to the record, which must be there.
func (v *Volume) RecordExamination() {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, found := v.Record, v.found
	if found == nil {
		return
	}
	if r.Stage.Errors == nil && r.Stage.Phase == record.PhaseDone {
		r.Stage.Errors = found.errors
	}
	if causeOf(r.Sick) == causeOf(found.sick) {
		return
	}
	if r.Hangs() { // calls that hung need not wait for the end of their backoff
		maps.DeleteFunc(v.Failures, func(_ plan.Step, f *failure.Failure) bool {
			return f.Reason == volumesv1alpha1.ReasonOutcomeUncertain
		})
	}
	r.Sick = found.sick
}

// forgetStage notes that nothing is staged any more.
func (v *Volume) forgetStage() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Record.Stage, v.Record.Sick, v.Record.Health = record.Stage{Path: v.Record.Stage.Path}, nil, nil
	v.found, v.problems = nil, nil
	v.stages++
}

// sickIsNews notes that the sickness is announced, and reports whether it was not.
func (v *Volume) sickIsNews(cause string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	news := v.announced != cause
	v.announced = cause
	return news
}
