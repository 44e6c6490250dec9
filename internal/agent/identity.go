/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// What a driver has published is compared with what it has staged, see docs/decisions/0020-what-is-published-is-the-volume.md.

// errOwnDisk: what is mounted is a directory of the node's own disk.
var errOwnDisk = errors.New("the node's own disk")

// verified returns what is mounted at path, one of the publication's two, once it is known to be the volume. What this publish
// has put there and is not the volume is taken away again.
func (a *Agent) verified(ctx context.Context, v *volume, f facts, u *Use, path string) (mount.Entry, error) {
	table, err := a.Mounts.Table()
	if err != nil {
		return mount.Entry{}, err
	}
	e, mounted := table.At(path)
	if !mounted {
		return e, problemf(volumesv1alpha1.ReasonPublishFailed, "the driver reports success, but nothing is mounted at %s", path)
	}
	wrong := a.notVolume(ctx, v.record, table, path, e)
	switch {
	case wrong == nil:
		return e, nil
	case f.uses[u.Intent.UID] != missing && !errors.Is(wrong, errOwnDisk):
		return e, &problem{reason: volumesv1alpha1.ReasonPathOccupied, message: "what is mounted at the published path is left alone", err: wrong}
	}
	if v.record.Stage.Source == "" {
		v.record.Stage.Phase = PhaseUncertain // what the driver published from may have been a mount that is gone
	}
	return e, &problem{reason: volumesv1alpha1.ReasonPublishFailed, message: "what the driver published is not the volume",
		err: errors.Join(wrong, a.undoPublication(ctx, v, f, u))}
}

// notVolume says why what is mounted at path cannot be the volume, nil if it can.
func (a *Agent) notVolume(ctx context.Context, r *Record, table *mount.Table, path string, e mount.Entry) error {
	if r.block() {
		return a.notDevice(ctx, r.Stage, path)
	}
	staged, known := shownBy(r.Stage.Source)
	if known && e.PartOf(staged) {
		return nil
	}
	if err := a.notOwn(table, r.Stage, e); err != nil || !known {
		return err
	}
	return fmt.Errorf("%s of %s is mounted at %s, and the volume is staged from %s", sourceOf(e), e.Source, path, r.Stage.Source)
}

// notOwn refuses a directory of the node's own disk that belongs to the kubelet or the agent, such as the bare staging path.
func (a *Agent) notOwn(table *mount.Table, s Stage, e mount.Entry) error {
	for _, dir := range []string{filepath.Dir(s.Path), a.paths.kubelet, a.paths.root} {
		if own, ok := table.Shown(dir); ok && e.PartOf(own) {
			return fmt.Errorf("%s is %s of the filesystem that holds %s: %w", e.Path, e.Root, dir, errOwnDisk)
		}
	}
	return nil
}

// notDevice refuses what is no device node, and another device than the one at the staging path.
func (a *Agent) notDevice(ctx context.Context, s Stage, path string) error {
	d, err := a.Mounts.DeviceOf(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("looking at the device: %w", err)
	case !d.Node:
		return fmt.Errorf("%s is no device node", path)
	case s.Device != "" && d.Path != "" && d.Path != s.Device:
		return fmt.Errorf("%s is device %s, and the volume is staged as %s", path, d.Path, s.Device)
	}
	return nil
}

// stagedDevice names the device of the stage. For a block volume that is the device node at the staging path: what else a driver
// mounts there, such as the filesystem that holds an image, is not what it publishes.
func (a *Agent) stagedDevice(ctx context.Context, r *Record) string {
	d := a.deviceAt(ctx, r.Stage.Path)
	if r.block() && !d.Node {
		return ""
	}
	return d.Path
}

// deviceAt is the device behind path, where there is one. It only informs.
func (a *Agent) deviceAt(ctx context.Context, path string) mount.Device {
	d, err := a.Mounts.DeviceOf(ctx, path)
	if err != nil {
		a.Log.V(1).Info("no device found", "path", path, "error", err.Error())
		return mount.Device{}
	}
	return d
}
