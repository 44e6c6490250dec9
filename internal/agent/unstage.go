/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var unstageStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true, supersedes: []verb{doStage, doShutdown, doExpand},
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.unstager().unstage(ctx, v, f)
	},
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// unstager undoes stages.
type unstager struct{ *Environment }

// unstage undoes the stage, unless somebody else still uses it.
func (a unstager) unstage(ctx context.Context, v *volume, f facts) error {
	r := v.record
	if r.Stage.Phase == PhaseNone {
		return a.referencer().unrefer(ctx, v)
	}
	if left, err := a.leavesStage(f); err != nil || left {
		return a.leaveStage(ctx, v, err)
	}
	if f.stage == foreign {
		return problemf(volumesv1alpha1.ReasonMountLost, "another filesystem than the staged one is mounted at %s; it is left alone", r.Stage.Path)
	}
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	if err := a.referencer().unrefer(ctx, v); err != nil {
		return err
	}
	if err := a.othersUse(ctx, v, f); err != nil {
		return err
	}
	if err := a.seeDevice(ctx, v, r.Stage.Path); err != nil {
		return err
	}
	r.Stage.Phase = PhaseUncertain
	req := driver.UnstageRequest{Handle: r.Handle, Mode: r.Mode, StagingPath: r.Stage.Path}
	err = a.call(ctx, v, f, "unstage", r.Stage.Path, func(ctx context.Context) error { return d.Unstage(ctx, req) })
	if err != nil && !driver.IsNotFound(err) {
		return err
	}
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	if left := table.All(r.Stage.Path); len(left) > 0 {
		return problemf(volumesv1alpha1.ReasonUnstageFailed, "the driver reports success, but %s is still mounted at %s", left[0].Source, r.Stage.Path)
	}
	if err := a.useSeen(v, table); err != nil {
		return a.putBack(ctx, v, f, err)
	}
	if err := a.stillMounting(v, f); err != nil {
		return err
	}
	r.Stage = Stage{Path: r.Stage.Path}
	return nil
}

// leavesStage reports whether the stage of an attachment that was taken away is none of the agent's to undo: the kubelet has recorded that
// it stages there, maybe on the volume's next attachment; or it was mounted after a reboot, which nothing of the attachment outlived.
func (a unstager) leavesStage(f facts) (bool, error) {
	if !f.stale() {
		return false, nil
	}
	if f.record.Stage.BootID != f.now.bootID && f.stage != missing {
		return true, nil
	}
	return a.kubeletStages(f.record)
}

// leaveStage forgets the stage. What is mounted there counts as in use by the kubelet, or by nobody that is known.
func (a unstager) leaveStage(ctx context.Context, v *volume, err error) error {
	if err != nil {
		return err
	}
	if err := a.referencer().unrefer(ctx, v); err != nil {
		return err
	}
	a.Observer.observeSoon() // the observer may not have seen it yet
	v.record.Stage = Stage{Path: v.record.Stage.Path}
	return nil
}

// putBack stages again what was undone under somebody who came between the look and the driver's call: the kubelet takes the
// volume for staged, and would publish the bare staging path.
func (a unstager) putBack(ctx context.Context, v *volume, f facts, used error) error {
	if !f.usable() {
		return used
	}
	f.stage = missing
	if err := a.stager().stage(ctx, v, f); err != nil {
		return fmt.Errorf("staging again, because %w: %w", used, err)
	}
	return used
}

// othersUse refuses to unstage while the kubelet or another mount uses the stage. When the attachment was taken away
// it does not matter whether a pod waits: that is for the next one.
func (a unstager) othersUse(ctx context.Context, v *volume, f facts) error {
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	if err := a.useSeen(v, table); err != nil || f.stale() {
		return err
	}
	var node corev1.Node
	err = a.Live.Get(ctx, types.NamespacedName{Name: a.NodeName}, &node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return &problem{reason: volumesv1alpha1.ReasonUnstageFailed, message: "the Node cannot be read, so the kubelet's use is not known", err: err}
	}
	if slices.Contains(node.Status.VolumesInUse, corev1.UniqueVolumeName(v.name)) {
		return shared("the kubelet uses the volume: node %s lists it in volumesInUse", a.NodeName)
	}
	return nil
}

// useSeen refuses while the node itself shows another use of the stage.
func (a unstager) useSeen(v *volume, table *mount.Table) error {
	r := v.record
	if others := stageElsewhere(table, r.Stage); len(others) > 0 && !r.block() {
		return shared("the volume is still mounted at %s", others[0].Path)
	}
	staged, err := a.kubeletStages(r)
	if err != nil || !staged {
		return err
	}
	a.Observer.observeSoon() // the observer may not have seen it yet
	return shared("the kubelet uses the volume: its record of the stage is there")
}

func shared(format string, args ...any) error {
	return problemf(volumesv1alpha1.ReasonSharedByKubelet, format, args...)
}

// stageElsewhere lists the other mounts of what is staged, also where somebody has removed the stage itself.
func stageElsewhere(table *mount.Table, s Stage) []mount.Entry {
	if e, ok := table.At(s.Path); ok {
		return table.Shares(e)
	}
	staged, known := shownBy(s.Source)
	if !known || staged.Major == 0 {
		return nil // without a device of its own its number is another filesystem's by now
	}
	return table.Shares(staged)
}
