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
func (env *Environment) publishReadOnly(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if err := env.noteDevice(ctx, v, u.Target, env.Mounts.At); err != nil {
		return err
	}
	device, err := env.Mounts.DeviceNode(ctx, u.Target)
	if err != nil {
		return fmt.Errorf("finding the published device: %w", err)
	}
	if device.Path == "" {
		return failure.Problemf(volumesv1alpha1.ReasonPublishFailed,
			"the driver reports success, but publishes no device")
	}
	u.Seq = device.Seq // also for the next attempt, as what may write can keep this one waiting for long
	if err := env.forbidWrites(ctx, v, f, u, device); err != nil {
		return err
	}
	if err := env.Mounts.EnsureDir(ctx, filepath.Dir(u.Path), PublishedDirMode); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	if err := env.Mounts.EnsureFile(ctx, u.Path, PublishedFileMode); err != nil {
		return fmt.Errorf("making published path: %w", err)
	}
	if err := env.Mounts.Bind(ctx, u.Target, u.Path, true, nil); err != nil {
		return fmt.Errorf("binding device: %w", err)
	}
	return nil
}

// forbidWrites has the kernel refuse writes to the device, unless it does so already or another process on the node may
// write to it. The record on disk names it before.
func (env *Environment) forbidWrites(ctx context.Context, v *Volume, f plan.Facts, u *record.Use,
	device mount.Device) error {
	already, err := env.Mounts.ReadOnly(ctx, device)
	if err != nil || already {
		return err
	}
	if err := env.writers(ctx, v, f, u, device); err != nil {
		return err
	}
	for i := range v.Record.Devices {
		if d := &v.Record.Devices[i]; d.Device == device && d.BootID == env.Now().BootID {
			d.ReadOnly = true
		}
	}
	if err := env.Persist(v); err != nil {
		return err
	}
	env.Step("before read-only")
	err = env.Mounts.SetReadOnly(ctx, device, true)
	env.Step("after read-only")
	return err
}

// writers returns an error that names what else may write to the device.
func (env *Environment) writers(
	ctx context.Context, v *Volume, f plan.Facts, u *record.Use, device mount.Device,
) error {
	refused := func(who string) error {
		return failure.Problemf(volumesv1alpha1.ReasonReadOnlyNotEnforced, "%s cannot be made read-only while %s",
			device.Path, who)
	}
	for _, o := range v.Record.Uses {
		if o.Intent.UID != u.Intent.UID && !o.ReadOnly && o.Phase != record.PhaseNone {
			return refused(fmt.Sprintf("intent %s/%s has it published for writing", o.Intent.Namespace, o.Intent.Name))
		}
	}
	used, err := env.kubeletStages(v.Record)
	if err != nil {
		return err
	}
	if used || f.Kubelet != nil {
		return refused("the kubelet uses it for a pod")
	}
	err = env.Mounts.CheckFree(ctx, device, true)
	var held *mount.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case !held.Claimed && len(held.Writers()) == 0:
		return nil // readers may go on
	}
	env.Holders.Await(v.Name, held)
	return refused("something writes to it: " + held.Error())
}

// mayWrite refuses to publish a device for writing while the agent has it read-only for another intent.
func (env *Environment) mayWrite(v *Volume, u *record.Use) error {
	for _, o := range v.Record.Uses {
		if o.Intent.UID != u.Intent.UID && o.ReadOnly && o.Phase != record.PhaseNone &&
			v.Record.RefusesWrites(env.Now().BootID) {
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
func (env *Environment) allowWrites(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	r := v.Record
	others := slices.ContainsFunc(r.Uses, func(o record.Use) bool {
		return o.Intent.UID != u.Intent.UID && o.ReadOnly && o.Phase != record.PhaseNone
	})
	if !u.ReadOnly || others {
		return nil
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		if !d.ReadOnly || d.BootID != env.Now().BootID {
			continue
		}
		err := env.Mounts.CheckFree(ctx, d.Device, true)
		var held *mount.HeldError
		switch {
		case errors.As(err, &held) && len(held.Writers()) > 0 && f.Kubelet == nil:
			env.Holders.Await(v.Name, held)
			return failure.Problemf(volumesv1alpha1.ReasonDeviceHeld,
				"the device stays read-only until no process has it open for writing: %v", held)
		case err != nil && held == nil:
			return err
		}
		env.Step("before writable")
		if err := env.Mounts.SetReadOnly(ctx, d.Device, false); err != nil {
			return err
		}
		d.ReadOnly = false
		env.Step("after writable")
	}
	return nil
}
