/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

var unpublishStep = step{
	operation: "unpublish", event: eventFailedUnmount, logged: true, perIntent: true, seeded: true,
	supersedes: []plan.Kind{plan.Publish}, endsUse: true, inputs: podInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, intent types.UID) error {
		return env.Unpublish(ctx, v, f, intent)
	},
}

// Unpublish undoes one publication and forgets the use, or what of it is not wanted any more.
func (env *Environment) Unpublish(ctx context.Context, v *Volume, f plan.Facts, intent types.UID) error {
	u := v.Record.UseOf(intent)
	if err := env.withdraw(ctx, v, f, u); err != nil {
		return explainMoved(*u, err)
	}
	v.Unsaved = true
	if i := f.Intent(intent); f.Stale() || i == nil || f.Ends(*u) {
		v.Record.Drop(intent)
		return nil
	}
	*u = record.Use{Intent: u.Intent, Want: volumesv1alpha1.DesiredStaged}
	return nil
}

// explainMoved adds why a publication is undone that its intent has not changed, to the error for pods that use it.
func explainMoved(u record.Use, err error) error {
	var p *failure.Problem
	if !u.Moved || !errors.As(err, &p) || p.Reason != volumesv1alpha1.ReasonUsedByPods {
		return err
	}
	explained := *p
	explained.Message = fmt.Sprintf("sub path %s was renamed or removed, and another directory is published: %s",
		u.SubPath(), p.Message)
	return &explained
}

// withdraw undoes the publication, if there is one, while no pod uses it.
func (env *Environment) withdraw(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if u.Phase == record.PhaseNone {
		return nil
	}
	end, err := env.keepPodsOut(ctx, v, f, *u)
	if err != nil {
		return err
	}
	defer end()
	return env.undoPublication(ctx, v, f, u)
}

// podInputs name the pods that use publications: the end of one of them is tried at once.
func podInputs(f plan.Facts) string {
	targets := make([]string, 0, len(f.Pods))
	for _, b := range f.Pods {
		targets = append(targets, b.Target)
	}
	return "/" + strings.Join(targets, "/")
}

// keepPodsOut keeps new pods from the publication until end is called, and takes it out of the directories of pods. It
// is an error while pods use the publication, unless its attachment was taken away: then the filesystem is shut down,
// and what the pods have left is waited for before the volume is released.
func (env *Environment) keepPodsOut(
	ctx context.Context, v *Volume, f plan.Facts, u record.Use,
) (end func(), err error) {
	if f.Stale() {
		// What cannot be taken out of a directory now is tried again there.
		if err := env.Directories.Withdraw(ctx, f.Name, u.Intent); err != nil {
			env.Log.Info("a volume that was forced away stays in the directory of a pod", "volume", f.Name, "error", err.Error())
		}
		return func() {}, nil
	}
	end, ok := env.Pods.BeginUndo(f.Name, u.Intent)
	if !ok {
		return nil, awaitPods(f, u)
	}
	if err := env.Directories.Withdraw(ctx, f.Name, u.Intent); err != nil {
		end()
		return nil, env.heldInDirectory(v, err)
	}
	return end, nil
}

// heldInDirectory is the error for a publication that stays in the directory of a pod. Where a process uses it, it is
// tried again when the process ends; one that lets go without ending is noticed by the backoff.
func (env *Environment) heldInDirectory(v *Volume, err error) error {
	var held *mount.HeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("taking the volume out of the directory of a pod: %w", err)
	}
	env.Holders.Await(v.Name, held)
	return &failure.Problem{Reason: volumesv1alpha1.ReasonUsedByPods, Message: fmt.Sprintf(
		"waiting until nothing uses the volume in the directory of %v", err)}
}

// retryNow lets a failure that a process caused try again.
func (v *Volume) retryNow(f *failure.Failure, now time.Time) {
	if f.Reason != volumesv1alpha1.ReasonUsedByPods || f.NextAttemptTime == nil {
		f.AwaitsEvent, f.NextAttemptTime = false, nil
		return
	}
	f.NextAttemptTime = &metav1.MicroTime{Time: status.ShortenWait(now, f.NextAttemptTime.Time, &v.shortened)}
}

// namedPods is how many pods a message names; the others are counted.
const namedPods = 5

// awaitPods is the error for a publication that a pod has as its volume. If that is not yet in the facts, the pod may
// be gone before they are gathered again: then the inputs would not change, and nothing would end the wait.
func awaitPods(f plan.Facts, u record.Use) error {
	if !slices.ContainsFunc(f.Pods, func(b record.PodBind) bool { return b.Shows(f.Name, u.Intent) && !b.HasPlace() }) {
		return fmt.Errorf("undoing a publication: a pod uses it by now: %w", failure.ErrChanged)
	}
	return usedByPods(f.PodsOf(u))
}

// usedByPods is the error for a publication that pods use. The end of a pod is tried at once.
func usedByPods(pods []string) error {
	named := pods
	if more := len(pods) - namedPods; more > 0 {
		named = append(slices.Clone(pods[:namedPods]), fmt.Sprintf("%d more", more))
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonUsedByPods, AwaitsEvent: true, Message: fmt.Sprintf(
		"waiting until the pods that use the volume are gone: %s", strings.Join(named, ", "))}
}

func (env *Environment) undoPublication(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if there := f.Uses[u.Intent.UID]; there == record.Foreign || there == record.Present && u.BootID != f.Now.BootID {
		return failure.Problemf(volumesv1alpha1.ReasonPathOccupied,
			"another mount covers %s; it stays there until an administrator removes it", u.Path)
	}
	d, err := env.driverOf(v)
	if err != nil {
		return err
	}
	if err := env.noteDevices(ctx, v, u, env.atNow); err != nil {
		return err
	}
	u.Phase = record.PhaseUncertain
	if err := env.undoOwn(ctx, v, u); err != nil {
		return err
	}
	req := driver.UnpublishRequest{Handle: v.Record.Handle, Mode: v.Record.Mode, TargetPath: u.Target}
	err = env.Call(ctx, v, f, "unpublish", u.Target, func(ctx context.Context) error { return d.Unpublish(ctx, req) })
	if err != nil && !driver.IsNotFound(err) {
		return env.explainUnpublish(*u, env.examineUndone(ctx, v, err))
	}
	table, err := env.Mounts.Table()
	if err != nil {
		return err
	}
	if left := table.All(u.Target); len(left) > 0 {
		return failure.Problemf(volumesv1alpha1.ReasonUnpublishFailed,
			"the driver reports success, but %s is still mounted at %s", left[0].Source, u.Target)
	}
	// Drivers should remove the target; not all do. What is not empty is not ours to remove.
	if err := env.Mounts.RemoveMountPoint(ctx, u.Target); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing published path: %w", err)
	}
	if err := env.callMayMount(v, f); err != nil {
		return err
	}
	if err := env.allowWrites(ctx, v, f, u); err != nil {
		return err
	}
	u.Phase, u.Source, u.Device, u.Seq = record.PhaseNone, "", "", 0
	return nil
}

// explainUnpublish names what a program has written to the bare path while the mount was lost. Drivers fail on it: they
// remove the path, and no more than an empty one.
func (env *Environment) explainUnpublish(u record.Use, err error) error {
	if !env.nothingAt(u.Target) {
		return err
	}
	by, unread := occupant(u, u.Target)
	if by == "" || unread != nil {
		return err
	}
	p := occupied(by, u.Target)
	p.Err = err
	return p
}

// undoOwn takes away what the agent itself has bound on top of the driver's publication. The disk knows of it
// before, so that after a crash the rest is taken away too.
func (env *Environment) undoOwn(ctx context.Context, v *Volume, u *record.Use) error {
	if u.Bound == "" && u.Target == u.Path {
		return nil
	}
	if err := env.Persist(v); err != nil {
		return err
	}
	if err := env.unbind(ctx, u); err != nil || u.Target == u.Path {
		return err
	}
	if err := env.removeMount(ctx, u.Path); err != nil {
		return fmt.Errorf("removing published path: %w", err)
	}
	return nil
}
