/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// addDevices notes the devices of the mounts that the observation before did not show, or whose device it did not find.
func (o *Observer) addDevices(table *mount.Table, before, now map[string]TrackedUse) {
	for name, u := range now {
		for _, path := range u.Mounts {
			e, mounted := table.At(path)
			if !mounted || slices.Contains(before[name].Mounts, path) && !slices.Contains(before[name].Unfound, path) {
				continue
			}
			d, err := OwnDevice(o.Lifetime, o.Mounts, o.Paths, table, e, u.Block)
			if err != nil {
				o.Log.Info("the device that the kubelet uses is not known", "volume", name, "path", path, "error",
					err.Error())
				u.Unfound = append(u.Unfound, path)
			}
			if d.Path != "" && !slices.Contains(u.Devices, d) {
				u.Devices = append(slices.Clone(u.Devices), d)
			}
		}
		now[name] = u
	}
}

// keepHeld keeps the uses that have ended while the kernel says that something still holds a device. Where the agent
// has the volume too, its own release asks. Those that are left to it are returned.
func (o *Observer) keepHeld(before, now map[string]TrackedUse, own map[string]record.Identity) (left []string) {
	for name, u := range before {
		if _, lasts := now[name]; lasts {
			continue
		}
		if _, ours := own[name]; ours {
			o.Volumes.Inherit(name, u.Devices)
			left = append(left, name)
			continue
		}
		if err := o.checkFree(name, u); err != nil {
			if u.Held == nil || !o.Clock.Now().Before(u.Held.NextAttemptTime.Time) {
				u.Held = failure.NextError(u.Held, "unstage", err, o.Clock.Now())
			}
			u.StagedPath, u.Mounts, u.Published, u.Waiting, u.Doubt = "", nil, false, false, ""
			now[name] = u
		} else if len(u.Devices) == 0 {
			o.Volumes.NoteMountTableRelease(name, u.AttachmentUID)
		}
	}
	return left
}

func (o *Observer) checkFree(name string, u TrackedUse) error {
	for _, d := range u.Devices {
		err := o.Mounts.CheckFree(o.Lifetime, d, u.Block)
		var held *mount.HeldError
		if errors.As(err, &held) {
			o.Volumes.AwaitHolder(name, held)
		}
		if err != nil {
			return HeldProblem(err)
		}
	}
	return nil
}

// DeviceFinder finds the block device under a mount.
type DeviceFinder interface {
	DeviceNode(ctx context.Context, path string) (mount.Device, error)
	DeviceUnder(e mount.Entry) (mount.Device, error)
}

// OwnDevice returns the block device that the volume has to itself; one without a path where there is none. A
// filesystem that the node has mounted elsewhere too, for itself or for other volumes, stays in use for good, so it
// proves nothing.
func OwnDevice(ctx context.Context, mounts DeviceFinder, p record.Paths, table *mount.Table, e mount.Entry,
	block bool) (mount.Device, error) {
	switch {
	case block:
		return mounts.DeviceNode(ctx, e.Path)
	case table.Own(e, p.Root, p.Kubelet):
		return mounts.DeviceUnder(e)
	}
	return mount.Device{}, nil
}

// HeldProblem is the error for a device that is not free, or not known to be.
func HeldProblem(err error) *failure.Problem {
	var held *mount.HeldError
	if errors.As(err, &held) {
		return failure.Problemf(volumesv1alpha1.ReasonDeviceHeld,
			"the volume is unmounted, but counts as in use until its device is free: %v", held)
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonDeviceHeld, Err: err,
		Message: "the volume is unmounted, but counts as in use, because the kernel does not report whether its " +
			"device is free"}
}
