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

	"github.com/hawser-io/hawser/internal/mount"
)

// What a driver has published is compared with what it has staged, see docs/decisions/0020-what-is-published-is-the-volume.md.

// errOwnDisk: what is mounted is a directory of the node's own disk.
var errOwnDisk = errors.New("the node's own disk")

// notVolume says why what is mounted at path cannot be the volume, nil if it can.
func (a *Environment) notVolume(ctx context.Context, r *Record, table *mount.Table, path string, e mount.Entry) error {
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
func (a *Environment) notOwn(table *mount.Table, s Stage, e mount.Entry) error {
	for _, dir := range []string{filepath.Dir(s.Path), a.Paths.kubelet, a.Paths.root} {
		if own, ok := table.Shown(dir); ok && e.PartOf(own) {
			return fmt.Errorf("%s is %s of the filesystem that holds %s: %w", e.Path, e.Root, dir, errOwnDisk)
		}
	}
	return nil
}

// notDevice refuses what is no device node, and another device than the one at the staging path.
func (a *Environment) notDevice(ctx context.Context, s Stage, path string) error {
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
func (a *Environment) stagedDevice(ctx context.Context, r *Record) string {
	d := a.deviceAt(ctx, r.Stage.Path)
	if r.block() && !d.Node {
		return ""
	}
	return d.Path
}

// deviceAt is the device behind path, where there is one. It only informs.
func (a *Environment) deviceAt(ctx context.Context, path string) mount.Device {
	d, err := a.Mounts.DeviceOf(ctx, path)
	if err != nil {
		a.Log.V(1).Info("no device found", "path", path, "error", err.Error())
		return mount.Device{}
	}
	return d
}
