/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"errors"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// NodeStageVolume sets up a loop device for the volume and, unless it is a block volume, mounts it.
func (n *node) NodeStageVolume(ctx context.Context,
	request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	volume, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if err := require("volume id", volume, "staging target path", staging); err != nil {
		return nil, err
	}
	capability := request.GetVolumeCapability()
	if err := checkCapability(capability); err != nil {
		return nil, err
	}
	publication, err := n.store.Published(volume, n.id)
	if err != nil {
		return nil, err
	}
	if link := request.GetPublishContext()[linkKey]; link != n.store.Link(volume, n.id) {
		return nil, status.Errorf(codes.InvalidArgument, "publish context names link %q, which is not this node's", link)
	}
	if publication.Block != (capability.GetBlock() != nil) {
		return nil, status.Errorf(codes.InvalidArgument, "volume %q was published with block %t", volume, publication.Block)
	}
	device, made, err := n.store.Attach(volume, n.id, publication.ReadOnly)
	if err != nil {
		return nil, err
	}
	if !publication.Block {
		if err := n.stageMount(ctx, request, device); err != nil {
			return nil, errors.Join(err, n.undo(device, made))
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// undo detaches the device that a failed stage made, unless it is mounted.
func (n *node) undo(device loopdev.Device, made bool) error {
	if !made {
		return nil
	}
	mounts, err := mountsOf([]loopdev.Device{device}, "")
	if err != nil || len(mounts) > 0 {
		return err
	}
	return device.Detach()
}

func (n *node) stageMount(ctx context.Context, request *csi.NodeStageVolumeRequest, device loopdev.Device) error {
	staging, wanted := request.GetStagingTargetPath(), request.GetVolumeCapability().GetMount()
	info, err := mountAt(staging)
	if err != nil {
		return err
	}
	switch {
	case info == nil:
		if err := n.formatAndMount(ctx, request, device); err != nil {
			return err
		}
	case info.Source != device.Path:
		return status.Errorf(codes.FailedPrecondition, "staging path %q has a mount of %s, not of the volume's %s",
			staging, info.Source, device.Path)
	case wanted.GetFsType() != "" && info.FSType != wanted.GetFsType():
		return status.Errorf(codes.AlreadyExists, "volume %q is staged with filesystem %s, not %s",
			request.GetVolumeId(), info.FSType, wanted.GetFsType())
	}
	// What is mounted was formatted to its end, also if an earlier call ended between its mount and here.
	if err := n.store.FormattingDone(request.GetVolumeId()); err != nil {
		return err
	}
	if device.ReadOnly {
		return nil
	}
	return giveToGroup(staging, wanted.GetVolumeMountGroup())
}

// NodeUnstageVolume unmounts the volume and detaches its loop devices, including those that were cut off.
func (n *node) NodeUnstageVolume(_ context.Context,
	request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	volume, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if err := require("volume id", volume, "staging target path", staging); err != nil {
		return nil, err
	}
	devices, err := n.devices(volume)
	if err != nil {
		return nil, err
	}
	elsewhere, err := mountsOf(devices, staging)
	if err != nil {
		return nil, err
	}
	if len(elsewhere) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is still mounted at %s",
			volume, strings.Join(elsewhere, ", "))
	}
	info, err := mountAt(staging)
	if err != nil {
		return nil, err
	}
	if _, ours := shown(info, devices); info != nil && !ours {
		return nil, status.Errorf(codes.FailedPrecondition, "staging path %q has a mount of %s, not of volume %q",
			staging, info.Source, volume)
	}
	if err := unmountAll(staging); err != nil {
		return nil, err
	}
	var errs []error
	for _, device := range devices {
		errs = append(errs, device.Detach())
	}
	return &csi.NodeUnstageVolumeResponse{}, errors.Join(errs...)
}
