/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// unpublish undoes one publication and forgets the use, or what of it is not wanted any more.
func (a *Agent) unpublish(ctx context.Context, v *volume, f facts, intent types.UID) error {
	u := v.record.use(intent)
	if u.Phase != PhaseNone {
		if err := a.undoPublication(ctx, v, f, u); err != nil {
			return err
		}
	}
	v.unsaved = true
	if i := f.intent(intent); f.stale() || i == nil || f.gone(*u) {
		v.record.drop(intent)
		return nil
	}
	*u = Use{Intent: u.Intent, Want: volumesv1alpha1.DesiredStaged}
	return nil
}

func (a *Agent) undoPublication(ctx context.Context, v *volume, f facts, u *Use) error {
	if there := f.uses[u.Intent.UID]; there == foreign || there == present && u.BootID != f.now.bootID {
		return problemf(volumesv1alpha1.ReasonPathOccupied, "another mount stands over %s; it is left alone until somebody removes it", u.Path)
	}
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	if err := a.seeDevice(ctx, v, u.Path); err != nil {
		return err
	}
	u.Phase = PhaseUncertain
	if err := a.undoOwn(ctx, v, u); err != nil {
		return err
	}
	req := driver.UnpublishRequest{Handle: v.record.Handle, Mode: v.record.Mode, TargetPath: u.Target}
	err = a.call(ctx, v, f, "unpublish", u.Target, func(ctx context.Context) error { return d.Unpublish(ctx, req) })
	if err != nil && !driver.IsNotFound(err) {
		return err
	}
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	if left := table.All(u.Target); len(left) > 0 {
		return problemf(volumesv1alpha1.ReasonUnpublishFailed, "the driver reports success, but %s is still mounted at %s", left[0].Source, u.Target)
	}
	// Drivers should remove the target; not all do. What is not empty is not ours to remove.
	if err := a.Mounts.RemoveMountPoint(ctx, u.Target); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing published path: %w", err)
	}
	if err := a.stillMounting(v, f); err != nil {
		return err
	}
	if err := a.allowWrites(ctx, v, f, u); err != nil {
		return err
	}
	u.Phase, u.Source, u.Device = PhaseNone, "", ""
	return nil
}

// stillMounting refuses to call something undone that an earlier call of unknown end may yet do: it is undone
// once more when that call's deadline has passed. What counts is when the undoing began.
func (a *Agent) stillMounting(v *volume, f facts) error {
	if !v.record.mayMount(f.now) {
		return nil
	}
	return inFlight(v.record.Unfinished, a.Clock.Now().Add(v.record.Unfinished.remaining(f.now)))
}

func inFlight(c *Call, until time.Time) *problem {
	return &problem{reason: volumesv1alpha1.ReasonCallInFlight, until: until,
		message: fmt.Sprintf("an earlier %s call may still run until %s", c.Operation, c.Deadline.UTC().Format(time.TimeOnly))}
}

// undoOwn takes away what the agent itself has bound on top of the driver's publication. The disk knows of it
// before, so that after a crash the rest is taken away too.
func (a *Agent) undoOwn(ctx context.Context, v *volume, u *Use) error {
	if u.Bound == "" && u.Target == u.Path {
		return nil
	}
	if err := a.save(v); err != nil {
		return err
	}
	if err := a.unbind(ctx, u); err != nil || u.Target == u.Path {
		return err
	}
	if err := a.removeMount(ctx, u.Path); err != nil {
		return fmt.Errorf("removing published path: %w", err)
	}
	return nil
}

// removeMount unmounts what the agent itself has bound at path and removes the mount point.
func (a *Agent) removeMount(ctx context.Context, path string) error {
	if err := a.Mounts.Unmount(ctx, path); err != nil {
		return err
	}
	return a.Mounts.RemoveMountPoint(ctx, path)
}

// unbind takes away what an earlier agent bound for the kubelet to see. A device node that is there by now stays.
func (a *Agent) unbind(ctx context.Context, u *Use) error {
	if u.Bound == "" {
		return nil
	}
	if err := a.removeMount(ctx, u.Bound); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing the device that an earlier agent bound: %w", err)
	}
	u.Bound = ""
	return nil
}

// removeEmpty removes directories that are shared with others, as far as they are empty.
func (a *Agent) removeEmpty(ctx context.Context, dirs ...string) {
	for _, dir := range dirs {
		if err := a.Mounts.RemoveMountPoint(ctx, dir); err != nil {
			a.Log.V(1).Info("directory stays", "path", dir, "why", err.Error())
			return
		}
	}
}

// unstage undoes the stage, unless somebody else still uses it.
func (a *Agent) unstage(ctx context.Context, v *volume, f facts) error {
	r := v.record
	if r.Stage.Phase == PhaseNone {
		return a.unrefer(ctx, v)
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
	if err := a.unrefer(ctx, v); err != nil {
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
func (a *Agent) leavesStage(f facts) (bool, error) {
	if !f.stale() {
		return false, nil
	}
	if f.record.Stage.BootID != f.now.bootID && f.stage != missing {
		return true, nil
	}
	return a.kubeletStages(f.record)
}

// leaveStage forgets the stage. What is mounted there counts as in use by the kubelet, or by nobody that is known.
func (a *Agent) leaveStage(ctx context.Context, v *volume, err error) error {
	if err != nil {
		return err
	}
	if err := a.unrefer(ctx, v); err != nil {
		return err
	}
	signal(a.observer.wake) // the observer may not have seen it yet
	v.record.Stage = Stage{Path: v.record.Stage.Path}
	return nil
}

// kubeletStages reports whether the kubelet's record of a stage of the volume is there.
func (a *Agent) kubeletStages(r *Record) (bool, error) {
	_, err := os.Lstat(a.paths.kubeletData(r.Driver, r.Handle, r.PersistentVolume, r.Mode))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the kubelet's use: %w", err)
	}
	return err == nil, nil
}

func (a *Agent) unrefer(ctx context.Context, v *volume) error {
	if v.record.block() {
		return a.unreferToDevice(ctx, v)
	}
	if err := a.removeMount(ctx, a.paths.reference(v.name)); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	a.step("after dereference")
	return nil
}

func (a *Agent) unreferToDevice(ctx context.Context, v *volume) error {
	dir := a.paths.globalMap(v.record.PersistentVolume)
	if err := a.Mounts.SetDeviceNodes(ctx, dir, nil); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	a.removeEmpty(ctx, dir, filepath.Dir(dir))
	a.step("after dereference")
	return nil
}

// putBack stages again what was undone under somebody who came between the look and the driver's call: the kubelet takes the
// volume for staged, and would publish the bare staging path.
func (a *Agent) putBack(ctx context.Context, v *volume, f facts, used error) error {
	if !f.usable() {
		return used
	}
	f.stage = missing
	if err := a.stage(ctx, v, f); err != nil {
		return fmt.Errorf("staging again, because %w: %w", used, err)
	}
	return used
}

// othersUse refuses to unstage while the kubelet or another mount uses the stage. When the attachment was taken away
// it does not matter whether a pod waits: that is for the next one.
func (a *Agent) othersUse(ctx context.Context, v *volume, f facts) error {
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
	if kubeletMayUse(&node, corev1.UniqueVolumeName(v.name)) {
		return shared("the kubelet uses the volume: node %s lists it in volumesInUse", a.NodeName)
	}
	return nil
}

// kubeletMayUse reports whether the Node lists the volume as in use and as attached. A kubelet lists in use what its pods merely wait
// for, and begins only once it finds the volume listed as attached. A pod may wait for the very intent that the agent releases.
func kubeletMayUse(node *corev1.Node, name corev1.UniqueVolumeName) bool {
	return slices.Contains(node.Status.VolumesInUse, name) &&
		slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
}

// useSeen refuses while the node itself shows another use of the stage.
func (a *Agent) useSeen(v *volume, table *mount.Table) error {
	r := v.record
	if others := stageElsewhere(table, r.Stage); len(others) > 0 && !r.block() {
		return shared("the volume is still mounted at %s", others[0].Path)
	}
	staged, err := a.kubeletStages(r)
	if err != nil || !staged {
		return err
	}
	signal(a.observer.wake) // the observer may not have seen it yet
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

// shutdown stops the filesystem of an attachment that was taken away, by a mount that is certainly of it, so that nothing of it
// reaches the volume's next life. Where that cannot be done the mount stays, and everybody is told.
func (a *Agent) shutdown(ctx context.Context, v *volume, f facts) error {
	r, path := v.record, f.ownMount()
	still := func() error {
		if path != r.Stage.Path {
			return nil
		}
		staged, err := a.kubeletStages(r)
		if staged {
			signal(a.observer.wake)
			err = fmt.Errorf("the kubelet has staged the volume: %w", errAgain)
		}
		return err
	}
	err := a.Mounts.ShutdownFilesystem(ctx, path, still, a.paths.root, a.paths.kubelet)
	if errors.Is(err, errAgain) {
		return err
	}
	if err != nil && !errors.Is(err, mount.ErrNotMounted) {
		v.unprotected = true
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, err: err,
			message: fmt.Sprintf("the attachment was taken away, but the filesystem at %s cannot be shut down; the mount is left alone", path)}
	}
	v.unprotected = false
	r.ShutDown = true
	return a.save(v)
}

// clear takes inUse back: when everything is known to be undone, no call can still be running, and the
// mount table agrees. From the moment it is tried the volume has to be taken anew to be used.
func (a *Agent) clear(ctx context.Context, v *volume, f facts) error {
	r := v.record
	if !r.callsEnded(f.now) {
		return inFlight(r.Unfinished, a.Clock.Now().Add(r.Unfinished.remaining(f.now)))
	}
	if err := a.checkFree(ctx, v); err != nil {
		return err
	}
	held := handshake.Held{Released: !r.touched(), CallsEnded: r.callsEnded(f.now), Mounted: f.mounted() || a.mountsBusy(v)}
	if g := (handshake.Protocol{}).MayClearInUse(held); g != handshake.GuardNone {
		return problemf(volumesv1alpha1.ReasonUnstageFailed, "the volume is still in use: refused by %s", g)
	}
	if r.block() {
		if err := a.unrefer(ctx, v); err != nil {
			return err
		}
	}
	// Also where no call was made: the agent may have died between making the directory and noting the call.
	a.removeEmpty(ctx, r.Stage.Path)
	if !r.block() {
		a.removeEmpty(ctx, filepath.Dir(r.Stage.Path))
	}
	// The disk need not know: a process that comes after believes the API, see recoverRecords.
	r.InUse = false
	if r.MountTableOnly && len(r.Devices) == 0 {
		a.restOnMountTable(v.name, r.AttachmentUID)
	}
	a.step("before clear")
	if err := a.state.urgent(ctx, change{volume: v.name}); err != nil {
		return err
	}
	a.step("after clear")
	if err := a.store.remove(v.name); err != nil {
		return &problem{reason: volumesv1alpha1.ReasonRecordFailed, message: "the record cannot be removed", err: err}
	}
	a.step("after forget")
	v.record, v.unsaved = nil, false
	v.failures = map[act]*failure{}
	v.unprotected = false
	return nil
}

// mountsBusy says whether a call into the kernel that was given up may still mount something.
func (a *Agent) mountsBusy(v *volume) bool {
	places := []string{v.record.Stage.Path, a.paths.reference(v.name)}
	return slices.ContainsFunc(places, func(p string) bool { _, busy := a.Mounts.Busy(p); return busy })
}
