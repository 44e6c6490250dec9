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

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/selinux"
)

var stageStep = step{
	operation: "stage", event: eventFailedMount, logged: true, session: true, seeded: true,
	follows: []plan.Kind{plan.MarkInUse}, supersedes: []plan.Kind{plan.Unstage, plan.ClearInUse},
	inputs: labelInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.stage(ctx, v, f)
	},
}

const (
	// sharedDirMode is the kubelet's for directories that it shares with drivers.
	sharedDirMode = 0o750
	// OwnDirMode is for what only the agent reads.
	OwnDirMode = 0o700
	// PublishedDirMode lets every user of the node pass; the volume has permissions of its own.
	PublishedDirMode = 0o755
	// PublishedFileMode of the file at which a device node is bound.
	PublishedFileMode = 0o600
)

// stage mounts the volume once for the node, with exactly the arguments that the kubelet would use.
func (env *Environment) stage(ctx context.Context, v *Volume, f plan.Facts) error {
	r := v.Record
	d, err := env.driverOf(v)
	if err != nil {
		return err
	}
	if f.Stage == record.Foreign {
		return failure.Problemf(volumesv1alpha1.ReasonMountLost,
			"another filesystem than the staged one is mounted at %s; it is left alone", r.Stage.Path)
	}
	label, err := env.stageLabel(f)
	if err != nil {
		return err
	}
	secrets, err := env.secrets(ctx, f.VolumeSource().StageSecret)
	if err != nil {
		return err
	}
	if err := env.Mounts.EnsureDir(ctx, r.Stage.Path, sharedDirMode); err != nil {
		return fmt.Errorf("making staging path: %w", err)
	}
	req := driver.StageRequest{Volume: env.request(f), StagingPath: r.Stage.Path, FSGroup: f.HeldGroup(),
		Secrets: secrets}
	if !r.Block() {
		req.MountOptions = withLabel(f.VolumeSource().MountOptions, label)
	}
	before := r.Stage
	r.Stage.Requested(f.Stage, f.Now.BootID)
	err = env.Call(ctx, v, f, "stage", r.Stage.Path, func(ctx context.Context) error { return d.Stage(ctx, req) })
	switch {
	case err == nil:
		return env.staged(ctx, v, f, before, label)
	case before.Phase == record.PhaseNone && env.leftNothing(f, r.Stage.Path, err):
		r.Stage = before
	}
	return env.ExplainStage(f, err)
}

// leftNothing reports whether a first call that failed has left nothing to undo. Where the volume was staged by the
// kubelet, what a final error has left is undone with that.
func (env *Environment) leftNothing(f plan.Facts, path string, err error) bool {
	if f.Stage != record.Missing {
		return !driver.IsUncertain(err)
	}
	return driver.HadNoEffect(err) && env.nothingAt(path)
}

// stageLabel is the SELinux label to stage with; empty for none. What is mounted at the staging path already, also by
// the kubelet, needs to have it: no remount changes the label of a filesystem.
func (env *Environment) stageLabel(f plan.Facts) (string, error) {
	holder := f.LabelHolder()
	if holder == nil {
		for _, u := range f.Record.Uses {
			if err := f.LabelRefused(u); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	label := f.Label(*holder)
	if f.Record.Stage.Phase != record.PhaseNone && (label == "" || f.StageLabel == "") {
		return label, nil // what is there is of an earlier call, and is checked after this one
	}
	return label, f.LabelConflict(*holder)
}

// checkLabel fails unless the driver has mounted with the label. One that ignores the option, or remounts with it,
// which the kernel ignores, would give the volume's files to other users.
func checkLabel(e mount.Entry, label string) error {
	switch is := selinux.Of(e.SuperOptions); {
	case label == "" || selinux.Same(is, label):
		return nil
	case is == "":
		return fmt.Errorf("%s is mounted without an SELinux label, and the driver was asked for %q: its CSIDriver has "+
			"seLinuxMount, but it does not mount with the label", e.Path, label)
	default:
		return fmt.Errorf("%s is mounted with the SELinux label %q, and the driver was asked for %q: it was mounted before, "+
			"and gets the other label once it was unmounted", e.Path, is, label)
	}
}

// withLabel are mount options with that of the label last, as the kubelet gives them to drivers.
func withLabel(options []string, label string) []string {
	if label == "" {
		return options
	}
	return append(slices.Clone(options), selinux.Option(label))
}

// staged notes what the driver has mounted. A driver may mount nothing at the staging path, but then it never did.
func (env *Environment) staged(ctx context.Context, v *Volume, f plan.Facts, before record.Stage, label string) error {
	s := &v.Record.Stage
	table, e, mounted, err := env.Mounts.At(s.Path)
	switch {
	case err != nil:
		return err
	case mounted:
		if err := rightFilesystem(f.VolumeSource().FSType, e); err != nil && !v.Record.Block() {
			return err
		}
		if err := env.notOwn(table, *s, e); err != nil {
			return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed,
				Message: "what the driver staged is not the volume", Err: err}
		}
		if err := checkLabel(e, label); err != nil && !v.Record.Block() {
			return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed, Message: "checking the stage", Err: err}
		}
		s.Source = record.SourceOf(e)
		env.noteStagedDevice(ctx, v.Record)
		env.noteErrorCount(ctx, s)
	case before.Source != "" || f.Stage != record.Missing:
		return &driver.Error{Outcome: driver.Uncertain, Code: volumesv1alpha1.ReasonMountLost,
			Message: fmt.Sprintf("the driver reports success, but nothing is mounted at %s any more", s.Path)}
	}
	if err := env.noteDevice(ctx, v, s.Path, env.Mounts.At); err != nil {
		return err
	}
	s.Phase, s.Unstaging = record.PhaseDone, false
	return nil
}

// rightFilesystem refuses a filesystem on a device that is not the one asked for. What is not on a device is the
// driver's own affair; many leave a default in fsType there.
func rightFilesystem(fsType string, e mount.Entry) error {
	if fsType == "" || !strings.HasPrefix(e.Source, "/dev/") || e.FSType == fsType || compatible(fsType, e.FSType) {
		return nil
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonFilesystemMismatch, Stalled: true,
		Message: fmt.Sprintf("the volume carries %s, but its PersistentVolume asks for fsType %s", e.FSType, fsType)}
}

// compatible filesystems are served by the same driver of the kernel under different names.
func compatible(a, b string) bool {
	ext := []string{"ext2", "ext3", "ext4"}
	return slices.Contains(ext, a) && slices.Contains(ext, b)
}

// ExplainStage gives a failed stage its cause where the node knows it better than the driver: a filesystem that
// neither the kernel nor a program of the node knows. It is asked only afterwards, because a driver may
// bring its own programs, and some take other words as fsType.
func (env *Environment) ExplainStage(f plan.Facts, err error) error {
	var e *driver.Error
	fsType := f.VolumeSource().FSType
	if f.Record.Block() || fsType == "" || !errors.As(err, &e) || e.Outcome == driver.Uncertain ||
		slices.Contains(failure.PreciseCodes, e.Code) {
		return err
	}
	if env.Filesystems == nil || env.Filesystems.Known(fsType) {
		return err
	}
	explained := *e
	explained.Code = volumesv1alpha1.ReasonUnknownFSType
	explained.Message = fmt.Sprintf("filesystem %q is not known on node %s: %s", fsType, env.NodeName, e.Message)
	if mount.KnownFilesystem(fsType) {
		explained.Code = volumesv1alpha1.ReasonFormatToolMissing
		explained.Message = fmt.Sprintf("the kernel of node %s does not know %s and the programs to make it are "+
			"missing: %s", env.NodeName, fsType, e.Message)
	}
	return &explained
}
