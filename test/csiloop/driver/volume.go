/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// at returns the volume's mount at the path and the device that it shows.
func (n *node) at(volume, path string) (*mountinfo.Info, loopdev.Device, error) {
	devices, err := n.present(volume)
	if err != nil {
		return nil, loopdev.Device{}, err
	}
	missing := status.Errorf(codes.NotFound, "volume %q is not at %q", volume, path)
	if _, err := resolve(path); err != nil {
		return nil, loopdev.Device{}, missing
	}
	info, err := mountAt(path)
	if err != nil {
		return nil, loopdev.Device{}, err
	}
	device, ok := shown(info, devices)
	if !ok {
		return nil, loopdev.Device{}, missing
	}
	return info, device, nil
}

// isDeviceNode reports whether the mount is a published block volume instead of a mounted filesystem.
func isDeviceNode(info *mountinfo.Info, device loopdev.Device) bool {
	return info.Source != device.Path
}

// NodeExpandVolume refreshes the device's size, then grows the filesystem while it is mounted.
func (n *node) NodeExpandVolume(ctx context.Context,
	request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	volume, path := request.GetVolumeId(), request.GetVolumePath()
	if err := require("volume id", volume, "volume path", path); err != nil {
		return nil, err
	}
	devices, err := n.present(volume)
	if err != nil {
		return nil, err
	}
	devices = slices.DeleteFunc(devices, func(d loopdev.Device) bool { return d.Unlinked })
	if len(devices) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q was cut off from node %q", volume, n.id)
	}
	// A staged block volume has no mount, so its staging path is accepted as it is.
	device, filesystem := devices[0], false
	if request.GetVolumeCapability().GetBlock() == nil {
		var info *mountinfo.Info
		info, device, err = n.at(volume, path)
		if err != nil {
			return nil, err
		}
		filesystem = !isDeviceNode(info, device)
	}
	for _, each := range devices {
		if err := each.Refresh(); err != nil {
			return nil, err
		}
	}
	size, err := device.Size()
	if err != nil {
		return nil, err
	}
	if wanted := request.GetCapacityRange().GetRequiredBytes(); size < wanted {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %q has %d bytes on node %q, %d were requested", volume, size, n.id, wanted)
	}
	if filesystem && !device.ReadOnly {
		if _, err := mount.NewResizeFs(newRunner(ctx)).Resize(device.Path, path); err != nil {
			return nil, fmt.Errorf("growing the filesystem: %w", err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeGetVolumeStats returns how full the filesystem is, or the size of the device.
func (n *node) NodeGetVolumeStats(_ context.Context,
	request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, path := request.GetVolumeId(), request.GetVolumePath()
	if err := require("volume id", volume, "volume path", path); err != nil {
		return nil, err
	}
	info, device, err := n.at(volume, path)
	if err != nil {
		return nil, err
	}
	if isDeviceNode(info, device) {
		size, err := device.Size()
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: size},
		}}, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, fmt.Errorf("reading filesystem: %w", err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(fs.Blocks) * fs.Bsize,
			Available: int64(fs.Bavail) * fs.Bsize,
			Used:      int64(fs.Blocks-fs.Bfree) * fs.Bsize,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(fs.Files),
			Available: int64(fs.Ffree),
			Used:      int64(fs.Files - fs.Ffree),
		},
	}}, nil
}

// NodeGetVolumeHealth reports whether the node's device still reaches the volume, and whether its filesystem is
// writable.
func (n *node) NodeGetVolumeHealth(_ context.Context,
	request *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	volume := request.GetVolumeId()
	if err := require("volume id", volume); err != nil {
		return nil, err
	}
	devices, err := n.present(volume)
	if err != nil {
		return nil, err
	}
	health := &csi.VolumeHealth{VolumeId: volume}
	for _, device := range devices {
		entry, err := healthOf(device)
		if err != nil {
			return nil, err
		}
		if entry != nil {
			health.HealthStatuses = append(health.HealthStatuses, entry)
			break // the same reason may be reported once only
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

func healthOf(device loopdev.Device) (*csi.VolumeHealth_VolumeHealthEntry, error) {
	if device.Unlinked {
		return &csi.VolumeHealth_VolumeHealthEntry{
			Status:  csi.VolumeHealthErrorType_INACCESSIBLE,
			Reason:  "CutOff",
			Message: "the volume was unpublished from the node while it was staged; " + device.Path + " no longer reaches it",
		}, nil
	}
	mounts, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return info.Source != device.Path, false
	})
	if err != nil {
		return nil, fmt.Errorf("reading mount table: %w", err)
	}
	for _, info := range mounts {
		stopped := hasOption(info.VFSOptions, "ro") || hasOption(info.VFSOptions, "shutdown") ||
			hasOption(info.VFSOptions, "emergency_ro")
		if stopped && !device.ReadOnly {
			return &csi.VolumeHealth_VolumeHealthEntry{
				Status:  csi.VolumeHealthErrorType_DEGRADED,
				Reason:  "FilesystemReadOnly",
				Message: "the filesystem on " + device.Path + " cannot be written: " + info.VFSOptions,
			}, nil
		}
	}
	return nil, nil
}
