/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var stageStep = step{
	operation: "stage", event: eventFailedMount, logged: true, session: true, supersedes: []verb{doUnstage, doClear},
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.stager().stage(ctx, v, f)
	},
}

// The right to read Secrets stands apart, in config/rbac, because clusters may want to narrow it.

const (
	// sharedDirMode is the kubelet's for directories that it shares with drivers.
	sharedDirMode = 0o750
	// ownDirMode is for what only the agent looks into.
	ownDirMode = 0o700
	// publishedDirMode lets every user of the node pass; the volume has permissions of its own.
	publishedDirMode = 0o755
	// publishedFileMode of the file at which a device node is bound.
	publishedFileMode = 0o600
)

// stager stages volumes.
type stager struct{ *Environment }

// stage mounts the volume once for the node, with exactly the arguments that the kubelet would use.
func (a stager) stage(ctx context.Context, v *volume, f facts) error {
	r := v.record
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	if f.stage == foreign {
		return problemf(volumesv1alpha1.ReasonMountLost, "another filesystem than the staged one is mounted at %s; it is left alone", r.Stage.Path)
	}
	secrets, err := a.secrets(ctx, f.entry.NodeStageSecretRef)
	if err != nil {
		return err
	}
	if err := a.Mounts.EnsureDir(ctx, r.Stage.Path, sharedDirMode); err != nil {
		return fmt.Errorf("making staging path: %w", err)
	}
	req := driver.StageRequest{Volume: a.request(f), StagingPath: r.Stage.Path, FSGroup: f.heldGroup(), Secrets: secrets}
	if !r.block() {
		req.MountOptions = f.entry.MountOptions
	}
	before := r.Stage
	r.Stage.asked(f.stage, f.now.bootID)
	err = a.call(ctx, v, f, "stage", r.Stage.Path, func(ctx context.Context) error { return d.Stage(ctx, req) })
	switch {
	case err == nil:
		return a.staged(ctx, v, f, before)
	case before.Phase == PhaseNone && !driver.IsUncertain(err) && (f.stage != missing || a.nothingAt(r.Stage.Path)):
		r.Stage = before // a final error of the first call: nothing was done
	}
	return a.explainStage(f, err)
}

// staged notes what the driver has mounted. A driver may mount nothing at the staging path, but then it never did.
func (a stager) staged(ctx context.Context, v *volume, f facts, before Stage) error {
	s := &v.record.Stage
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	e, mounted := table.At(s.Path)
	switch {
	case mounted:
		if err := rightFilesystem(f.entry.FSType, e); err != nil && !v.record.block() {
			return err
		}
		if err := a.notOwn(table, *s, e); err != nil {
			return &problem{reason: volumesv1alpha1.ReasonStageFailed, message: "what the driver staged is not the volume", err: err}
		}
		s.Source = sourceOf(e)
		s.Device = a.stagedDevice(ctx, v.record)
	case before.Source != "" || f.stage != missing:
		return &driver.Error{Outcome: driver.Uncertain, Code: volumesv1alpha1.ReasonMountLost,
			Message: fmt.Sprintf("the driver reports success, but nothing is mounted at %s any more", s.Path)}
	}
	if err := a.seeDevice(ctx, v, s.Path); err != nil {
		return err
	}
	s.Phase = PhaseDone
	return nil
}

// rightFilesystem refuses a filesystem on a device that is not the one asked for. What is not on a device is the
// driver's own affair; many leave a default in fsType there.
func rightFilesystem(fsType string, e mount.Entry) error {
	if fsType == "" || !strings.HasPrefix(e.Source, "/dev/") || e.FSType == fsType || compatible(fsType, e.FSType) {
		return nil
	}
	return &problem{reason: volumesv1alpha1.ReasonFilesystemMismatch, stalled: true,
		message: fmt.Sprintf("the volume carries %s, but its PersistentVolume says fsType %s", e.FSType, fsType)}
}

// compatible filesystems are served by the same driver of the kernel under different names.
func compatible(a, b string) bool {
	ext := []string{"ext2", "ext3", "ext4"}
	return slices.Contains(ext, a) && slices.Contains(ext, b)
}

// explainStage gives a failed stage its cause where the node knows it better than the driver: a filesystem that
// neither the kernel nor a program of the node knows. It is asked only afterwards, because a driver may
// bring its own programs, and some take other words as fsType.
func (a stager) explainStage(f facts, err error) error {
	var e *driver.Error
	fsType := f.entry.FSType
	if f.record.block() || fsType == "" || !errors.As(err, &e) || e.Outcome == driver.Uncertain || slices.Contains(preciseCodes, e.Code) {
		return err
	}
	if a.Filesystems == nil || a.Filesystems.Known(fsType) {
		return err
	}
	explained := *e
	explained.Code = volumesv1alpha1.ReasonUnknownFSType
	explained.Message = fmt.Sprintf("filesystem %q is not known on node %s: %s", fsType, a.NodeName, e.Message)
	if mount.KnownFilesystem(fsType) {
		explained.Code = volumesv1alpha1.ReasonFormatToolMissing
		explained.Message = fmt.Sprintf("the kernel of node %s does not know %s and the programs to make it are missing: %s", a.NodeName, fsType, e.Message)
	}
	return &explained
}
