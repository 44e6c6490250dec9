/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawser-io/hawser/internal/mount"
)

// seeDevice notes the block device of what is mounted at path, so that the kernel can be asked about it once nothing is mounted any
// more. It is called while the volume is there: a device number may be another volume's later, and the node may be gone.
func (a *Environment) seeDevice(ctx context.Context, v *volume, path string) error {
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	e, mounted := table.At(path)
	if !mounted {
		return nil
	}
	d, err := ownDevice(ctx, a.Mounts, a.Paths, table, e, v.record.block())
	if err != nil {
		return fmt.Errorf("finding the device of %s: %w", path, err)
	}
	if d.Path != "" || !v.record.block() { // drivers mount anything at the staging path of a raw device
		v.record.see(d, a.BootID)
	}
	return nil
}

// checkFree asks the kernel whether anything still holds a device of the volume: a container with a copy of the mount that no unmount
// reaches, or a process that has the raw device open.
func (a *Environment) checkFree(ctx context.Context, v *volume) error {
	r := v.record
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.BootID != a.BootID {
			continue
		}
		err := a.Mounts.CheckFree(ctx, d.Device, r.block())
		var held *mount.HeldError
		if d.Held = errors.As(err, &held); d.Held {
			a.Holders.await(v.name, held)
		}
		if err != nil {
			return heldProblem(err)
		}
	}
	return nil
}
