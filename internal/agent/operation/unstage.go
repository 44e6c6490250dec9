/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var unstageStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true, seeded: true,
	supersedes: []plan.Kind{plan.Stage, plan.Shutdown, plan.Expand}, inputs: podInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.unstage(ctx, v, f)
	},
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// unstage undoes the stage, unless something else still uses it.
func (env *Environment) unstage(ctx context.Context, v *Volume, f plan.Facts) error {
	r := v.Record
	if r.Stage.Phase == record.PhaseNone {
		return env.removeReference(ctx, v)
	}
	if left, err := env.stageIsForeign(f); err != nil || left {
		return env.forgetStage(ctx, v, err)
	}
	if f.Stage == record.Foreign {
		return failure.Problemf(volumesv1alpha1.ReasonMountLost,
			"another filesystem than the staged one is mounted at %s; it is left alone", r.Stage.Path)
	}
	d, err := env.driverOf(v)
	if err != nil {
		return err
	}
	if err := env.removeReference(ctx, v); err != nil {
		return err
	}
	if pods := f.PodsOfVolume(); len(pods) > 0 {
		return usedByPods(pods)
	}
	if err := env.CheckOtherUses(ctx, v, f); err != nil {
		return err
	}
	if err := env.noteDevice(ctx, v, r.Stage.Path, env.atNow); err != nil {
		return err
	}
	r.Stage.Phase, r.Stage.Unstaging = record.PhaseUncertain, true
	req := driver.UnstageRequest{Handle: r.Handle, Mode: r.Mode, StagingPath: r.Stage.Path}
	err = env.Call(ctx, v, f, "unstage", r.Stage.Path, func(ctx context.Context) error { return d.Unstage(ctx, req) })
	if err != nil && !driver.IsNotFound(err) {
		return env.explainUnstage(r, env.examineUndone(ctx, v, err))
	}
	table, err := env.Mounts.Table()
	if err != nil {
		return err
	}
	if left := table.All(r.Stage.Path); len(left) > 0 {
		return failure.Problemf(volumesv1alpha1.ReasonUnstageFailed,
			"the driver reports success, but %s is still mounted at %s", left[0].Source, r.Stage.Path)
	}
	if err := env.checkUse(v, table); err != nil {
		return env.StageAgain(ctx, v, f, err)
	}
	if err := env.callMayMount(v, f); err != nil {
		return err
	}
	v.forgetStage()
	return nil
}

// explainUnstage names what is in the staging path of a filesystem, where the driver fails because there is something.
// Drivers may have files of their own there, so it is in the way only if the driver's message names it as the cause.
func (env *Environment) explainUnstage(r *record.Record, err error) error {
	if r.Block() || !strings.Contains(err.Error(), unix.ENOTEMPTY.Error()) || !env.nothingAt(r.Stage.Path) {
		return err
	}
	by, unread := mount.Occupant(r.Stage.Path, fs.ModeDir)
	if by == "" || unread != nil {
		return err
	}
	p := occupied(by, r.Stage.Path)
	p.Err = err
	return p
}

// stageIsForeign reports whether the stage of an attachment that was taken away is none of the agent's to undo: the
// kubelet has recorded that it stages there, maybe on the volume's next attachment; or it was mounted after a reboot,
// which nothing of the attachment outlived.
func (env *Environment) stageIsForeign(f plan.Facts) (bool, error) {
	if !f.Stale() {
		return false, nil
	}
	if f.Record.Stage.BootID != f.Now.BootID && f.Stage != record.Missing {
		return true, nil
	}
	return env.kubeletStages(f.Record)
}

// forgetStage forgets the stage. What is mounted there counts as used by the kubelet, or by an unknown program.
func (env *Environment) forgetStage(ctx context.Context, v *Volume, err error) error {
	if err != nil {
		return err
	}
	if err := env.removeReference(ctx, v); err != nil {
		return err
	}
	env.Observer.ObserveSoon() // the observer may not have seen it yet
	v.forgetStage()
	return nil
}

// StageAgain stages again what was undone although the kubelet began to use it between the check and the driver's call:
// the kubelet takes the volume for staged, and would publish the bare staging path. What fails is tried again.
func (env *Environment) StageAgain(ctx context.Context, v *Volume, f plan.Facts, used error) error {
	if !f.Usable() {
		return used
	}
	f.Stage = record.Missing
	if err := env.stage(ctx, v, f); err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed,
			Message: fmt.Sprintf("staging again, because %v", used), Err: err}
	}
	return used
}

// CheckOtherUses refuses to unstage while the kubelet or another mount uses the stage. When the attachment was taken
// away it does not matter whether a pod waits: that is for the next one.
func (env *Environment) CheckOtherUses(ctx context.Context, v *Volume, f plan.Facts) error {
	table, err := env.Mounts.Table()
	if err != nil {
		return err
	}
	if err := env.checkUse(v, table); err != nil || f.Stale() {
		return err
	}
	var node corev1.Node
	err = env.Live.Get(ctx, types.NamespacedName{Name: env.NodeName}, &node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonUnstageFailed,
			Message: "the Node cannot be read, so the kubelet's use is not known", Err: err}
	}
	if kubeletMayUse(&node, corev1.UniqueVolumeName(v.Name), f.VolumeSource()) {
		return SharedByKubelet("the kubelet uses the volume: node %s lists it in volumesInUse", env.NodeName)
	}
	return nil
}

// kubeletMayUse reports whether the kubelet may have the volume that the Node lists in volumesInUse. A kubelet lists a
// volume as soon as a pod waits for it, and begins once volumesAttached lists it, too. A volume for a single pod is
// listed there only once its user is that pod, so a pod may wait for the very release that asks here.
func kubeletMayUse(node *corev1.Node, name corev1.UniqueVolumeName, s record.VolumeSource) bool {
	if !slices.Contains(node.Status.VolumesInUse, name) {
		return false
	}
	return !slices.Contains(s.AccessModes, corev1.ReadWriteOncePod) ||
		slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
}

// checkUse refuses while the node itself shows another use of the stage.
func (env *Environment) checkUse(v *Volume, table *mount.Table) error {
	r := v.Record
	if others := env.stageElsewhere(table, r); len(others) > 0 && !r.Block() {
		return SharedByKubelet("the volume is still mounted at %s", others[0].Path)
	}
	staged, err := env.kubeletStages(r)
	if err != nil || !staged {
		return err
	}
	env.Observer.ObserveSoon() // the observer may not have seen it yet
	return SharedByKubelet("the kubelet uses the volume: its record of the stage is there")
}

// SharedByKubelet is the error for a stage that something else uses too.
func SharedByKubelet(format string, args ...any) error {
	return failure.Problemf(volumesv1alpha1.ReasonSharedByKubelet, format, args...)
}

// stageElsewhere lists the other mounts of what is staged, also where the stage itself was removed. Another volume of
// the same source (two PersistentVolumes of one share) has mounts of its own: neither waits for the other's.
func (env *Environment) stageElsewhere(table *mount.Table, r *record.Record) []mount.Entry {
	others := env.placesOfOthers(r)
	return table.Without(sharing(table, r.Stage), func(e mount.Entry) bool { return others.Has(e.Path) })
}

func sharing(table *mount.Table, s record.Stage) []mount.Entry {
	if e, ok := table.At(s.Path); ok {
		return table.Shares(e)
	}
	staged, known := record.ParseSource(s.Source)
	if !known || staged.Major == 0 {
		return nil // without a device of its own its number is another filesystem's by now
	}
	return table.Shares(staged)
}

// placesOfOthers are the paths at which another volume is known to be mounted, and not this one: by the agent, for a
// pod that has it inline, or by the kubelet.
func (env *Environment) placesOfOthers(r *record.Record) sets.Set[string] {
	ofOthers, ofThis := sets.New[string](), sets.New[string]()
	of := func(volume string) sets.Set[string] {
		if volume == r.VolumeName {
			return ofThis
		}
		return ofOthers
	}
	for volume, paths := range env.Store.Places() {
		of(volume).Insert(paths...).Insert(env.Paths.Reference(volume))
	}
	for _, b := range env.Pods.All() {
		of(b.VolumeName).Insert(b.Target)
	}
	last, _ := env.Observer.Latest()
	for volume, u := range last.Uses {
		of(volume).Insert(u.Mounts...)
	}
	return ofOthers.Difference(ofThis)
}
