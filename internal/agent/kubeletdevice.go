/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// seeKubeletDevices notes the devices of the mounts that the look before did not show.
func (o *observer) seeKubeletDevices(table *mount.Table, before, now map[string]kubeletUse) {
	for name, u := range now {
		for _, path := range u.mounts {
			e, mounted := table.At(path)
			if !mounted || slices.Contains(before[name].mounts, path) {
				continue
			}
			d, err := ownDevice(o.lifetime, o.Mounts, o.Paths, table, e, u.Block)
			if err != nil {
				o.Log.Info("the device that the kubelet uses is not known", "volume", name, "path", path, "error", err.Error())
			}
			if d.Path != "" && !slices.Contains(u.Devices, d) {
				u.Devices = append(slices.Clone(u.Devices), d)
			}
		}
		now[name] = u
	}
}

// keepHeld keeps the uses that have ended while the kernel says that something still holds a device. Where the agent has the
// volume too, its own release asks.
func (o *observer) keepHeld(before, now map[string]kubeletUse, own map[string]identity) {
	for name, u := range before {
		if _, lasts := now[name]; lasts {
			continue
		}
		if _, ours := own[name]; ours {
			o.Volumes.Inherit(name, u.Devices)
			continue
		}
		if err := o.checkKubeletFree(name, u); err != nil {
			if u.held == nil || !o.Clock.Now().Before(u.held.NextAttemptTime.Time) {
				u.held = nextError(u.held, "unstage", err, o.Clock.Now())
			}
			u.StagedPath, u.mounts, u.published, u.waiting, u.doubt = "", nil, false, false, ""
			now[name] = u
		} else if len(u.Devices) == 0 {
			o.Volumes.RestOnMountTable(name, u.AttachmentUID)
		}
	}
}

func (o *observer) checkKubeletFree(name string, u kubeletUse) error {
	for _, d := range u.Devices {
		err := o.Mounts.CheckFree(o.lifetime, d, u.Block)
		var held *mount.HeldError
		if errors.As(err, &held) {
			o.Volumes.AwaitHolder(name, held)
		}
		if err != nil {
			return heldProblem(err)
		}
	}
	return nil
}

// deviceFinder finds the block device under a mount.
type deviceFinder interface {
	DeviceNode(ctx context.Context, path string) (mount.Device, error)
	DeviceUnder(e mount.Entry) (mount.Device, error)
}

// ownDevice returns the block device that the volume has to itself; one without a path where there is none. A filesystem that
// the node has mounted elsewhere too, for itself or for other volumes, stays in use for good: it tells nothing.
func ownDevice(ctx context.Context, mounts deviceFinder, p paths, table *mount.Table, e mount.Entry, block bool) (mount.Device, error) {
	switch {
	case block:
		return mounts.DeviceNode(ctx, e.Path)
	case table.Own(e, p.root, p.kubelet):
		return mounts.DeviceUnder(e)
	}
	return mount.Device{}, nil
}

func heldProblem(err error) *problem {
	var held *mount.HeldError
	if errors.As(err, &held) {
		return problemf(volumesv1alpha1.ReasonDeviceHeld, "the volume is unmounted, but counts as in use until its device is free: %v", held)
	}
	return &problem{reason: volumesv1alpha1.ReasonDeviceHeld, err: err,
		message: "the volume is unmounted, but counts as in use, because the kernel does not tell whether its device is free"}
}
