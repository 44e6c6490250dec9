/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// NodePublishVolume binds the staged mount, or the device node, to the target.
func (n *node) NodePublishVolume(_ context.Context,
	request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	volume, target := request.GetVolumeId(), request.GetTargetPath()
	if err := require("volume id", volume, "target path", target, "staging target path",
		request.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := checkCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	publication, err := n.store.Published(volume, n.id)
	if err != nil {
		return nil, err
	}
	if publication.Block != (request.GetVolumeCapability().GetBlock() != nil) {
		return nil, status.Errorf(codes.InvalidArgument, "volume %q was published with block %t", volume, publication.Block)
	}
	mode := request.GetVolumeCapability().GetAccessMode().GetMode()
	if mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		if err := n.refuseSecond(volume, target); err != nil {
			return nil, err
		}
	}
	readOnly := request.GetReadonly() || publication.ReadOnly
	device, source, err := n.staged(request, publication.ReadOnly, readOnly)
	if err != nil {
		return nil, err
	}
	if err := n.store.AddTarget(volume, n.id, target); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, publish(request, device, source, readOnly)
}

// staged returns the volume's device and the source of the bind: the staged mount or the device node.
func (n *node) staged(request *csi.NodePublishVolumeRequest, deviceReadOnly, readOnly bool) (loopdev.Device,
	string, error) {
	volume, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	devices, err := n.devices(volume)
	if err != nil {
		return loopdev.Device{}, "", err
	}
	at := slices.IndexFunc(devices, func(d loopdev.Device) bool { return !d.Unlinked && d.ReadOnly == deviceReadOnly })
	if at < 0 {
		return loopdev.Device{}, "",
			status.Errorf(codes.FailedPrecondition, "volume %q is not staged on node %q", volume, n.id)
	}
	device := devices[at]
	if request.GetVolumeCapability().GetBlock() != nil {
		// A read-only mount does not prevent writes to a device node, so the device itself has to be read-only.
		if readOnly {
			device, _, err = n.store.Attach(volume, n.id, true)
		}
		return device, device.Path, err
	}
	info, err := mountAt(staging)
	if err != nil {
		return device, "", err
	}
	if info == nil || !shows(info, device) {
		return device, "", status.Errorf(codes.FailedPrecondition, "volume %q is not staged at %q", volume, staging)
	}
	return device, staging, nil
}

func publish(request *csi.NodePublishVolumeRequest, device loopdev.Device, source string, readOnly bool) error {
	target, block := request.GetTargetPath(), request.GetVolumeCapability().GetBlock() != nil
	info, err := mountAt(target)
	if err != nil {
		return err
	}
	if info != nil {
		return isPublication(info, device, target, readOnly, block)
	}
	made, err := makeTarget(target, block)
	if err != nil {
		return err
	}
	options := slices.Clone(request.GetVolumeCapability().GetMount().GetMountFlags())
	if readOnly {
		options = append(options, "ro")
	}
	err = bind(source, target, options)
	if err != nil && made {
		err = errors.Join(err, removeTarget(target))
	}
	return err
}

// isPublication checks the mount that the target has already.
func isPublication(info *mountinfo.Info, device loopdev.Device, target string, readOnly, block bool) error {
	switch {
	case !shows(info, device):
		return status.Errorf(codes.FailedPrecondition, "target %q has a mount of %s%s, not of %s",
			target, info.Source, info.Root, device.Path)
	case !block && hasOption(info.Options, "ro") != readOnly:
		return status.Errorf(codes.AlreadyExists, "target %q is published with read-only %t", target, !readOnly)
	}
	return nil
}

// NodeUnpublishVolume removes the target, whatever the state of the volume is.
func (n *node) NodeUnpublishVolume(_ context.Context,
	request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	volume, target := request.GetVolumeId(), request.GetTargetPath()
	if err := require("volume id", volume, "target path", target); err != nil {
		return nil, err
	}
	if err := unmountAll(target); err != nil {
		return nil, err
	}
	if err := removeTarget(target); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, n.store.RemoveTarget(volume, n.id, target)
}

// refuseSecond refuses a second target of a volume that only one workload may use. The store records the targets,
// because a publication and a bind mount of it are equal in the mount table.
func (n *node) refuseSecond(volume, target string) error {
	targets, err := n.store.Targets(volume, n.id)
	if err != nil {
		return err
	}
	devices, err := n.devices(volume)
	if err != nil {
		return err
	}
	for _, other := range targets {
		info, err := mountAt(other)
		if err != nil {
			return err
		}
		if _, ours := shown(info, devices); ours && other != target {
			return status.Errorf(codes.FailedPrecondition, "volume %q has a single writer, at %q", volume, other)
		}
	}
	return nil
}
