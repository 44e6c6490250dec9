/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// A device node can be written to through a read-only bind mount of it, so the device itself has to refuse writes. That
// holds for every process on the node. Therefore a device is published either read-only or for writing; the second
// intent waits.

// publishReadOnly shows the device that the driver has published at the hidden target, once the kernel refuses writes
// to it.
func (op Publisher) publishReadOnly(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if err := op.noteDevice(ctx, v, u.Target); err != nil {
		return err
	}
	device, err := op.Mounts.DeviceNode(ctx, u.Target)
	if err != nil {
		return fmt.Errorf("finding the published device: %w", err)
	}
	if device.Path == "" {
		return failure.Problemf(volumesv1alpha1.ReasonPublishFailed,
			"the driver reports success, but publishes no device")
	}
	if err := op.forbidWrites(ctx, v, f, u, device); err != nil {
		return err
	}
	if err := op.Mounts.EnsureDir(ctx, filepath.Dir(u.Path), PublishedDirMode); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	if err := op.Mounts.EnsureFile(ctx, u.Path, PublishedFileMode); err != nil {
		return fmt.Errorf("making published path: %w", err)
	}
	if err := op.Mounts.Bind(ctx, u.Target, u.Path, true, nil); err != nil {
		return fmt.Errorf("binding device: %w", err)
	}
	return nil
}

// forbidWrites has the kernel refuse writes to the device, unless it does so already or another process on the node may
// write to it. The record on disk names it before.
func (op Publisher) forbidWrites(ctx context.Context, v *Volume, f plan.Facts, u *record.Use,
	device mount.Device) error {
	already, err := op.Mounts.ReadOnly(ctx, device)
	if err != nil || already {
		return err
	}
	if err := op.writers(ctx, v, f, u, device); err != nil {
		return err
	}
	for i := range v.Record.Devices {
		if d := &v.Record.Devices[i]; d.Device == device && d.BootID == op.BootID {
			d.ReadOnly = true
		}
	}
	if err := op.Persist(v); err != nil {
		return err
	}
	op.Step("before read-only")
	err = op.Mounts.SetReadOnly(ctx, device, true)
	op.Step("after read-only")
	return err
}

// writers returns an error that names what else may write to the device.
func (op Publisher) writers(ctx context.Context, v *Volume, f plan.Facts, u *record.Use, device mount.Device) error {
	refused := func(who string) error {
		return failure.Problemf(volumesv1alpha1.ReasonReadOnlyNotEnforced, "%s cannot be made read-only while %s",
			device.Path, who)
	}
	for _, o := range v.Record.Uses {
		if o.Intent.UID != u.Intent.UID && !o.ReadOnly && o.Phase != record.PhaseNone {
			return refused(fmt.Sprintf("intent %s/%s has it published for writing", o.Intent.Namespace, o.Intent.Name))
		}
	}
	used, err := op.kubeletStages(v.Record)
	if err != nil {
		return err
	}
	if used || f.Kubelet != nil {
		return refused("the kubelet uses it for a pod")
	}
	err = op.Mounts.CheckFree(ctx, device, true)
	var held *mount.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case !held.Claimed && len(held.Writers()) == 0:
		return nil // readers may go on
	}
	op.Holders.Await(v.Name, held)
	return refused("something writes to it: " + held.Error())
}

// mayWrite refuses to publish a device for writing while the agent has it read-only for another intent.
func (op Publisher) mayWrite(v *Volume, u *record.Use) error {
	for _, o := range v.Record.Uses {
		if o.Intent.UID != u.Intent.UID && o.ReadOnly && o.Phase != record.PhaseNone &&
			v.Record.RefusesWrites(op.BootID) {
			return failure.Problemf(volumesv1alpha1.ReasonDeviceReadOnly,
				"the device refuses writes while intent %s/%s has it published read-only",
				o.Intent.Namespace, o.Intent.Name)
		}
	}
	return nil
}

// allowWrites takes the kernel's refusal back when the last read-only publication ends. A process that has the device
// open for writing all the same would begin to write: it is waited for, unless the kubelet uses the device for pods,
// which may write.
func (op Unpublisher) allowWrites(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	r := v.Record
	others := slices.ContainsFunc(r.Uses, func(o record.Use) bool {
		return o.Intent.UID != u.Intent.UID && o.ReadOnly && o.Phase != record.PhaseNone
	})
	if !u.ReadOnly || others {
		return nil
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		if !d.ReadOnly || d.BootID != op.BootID {
			continue
		}
		err := op.Mounts.CheckFree(ctx, d.Device, true)
		var held *mount.HeldError
		switch {
		case errors.As(err, &held) && len(held.Writers()) > 0 && f.Kubelet == nil:
			op.Holders.Await(v.Name, held)
			return failure.Problemf(volumesv1alpha1.ReasonDeviceHeld,
				"the device stays read-only until no process has it open for writing: %v", held)
		case err != nil && held == nil:
			return err
		}
		op.Step("before writable")
		if err := op.Mounts.SetReadOnly(ctx, d.Device, false); err != nil {
			return err
		}
		d.ReadOnly = false
		op.Step("after writable")
	}
	return nil
}
