/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/hawser-io/hawser/test/machine/plugin"
)

type nodeServer struct {
	csi.UnimplementedNodeServer
	name    string
	mounter *mount.SafeFormatAndMount
	// mountInfo is the mount table.
	mountInfo string
	// deviceOf returns the disk of a target, or "".
	deviceOf func(target string) (string, error)
}

func newNodeServer(name string) *nodeServer {
	return &nodeServer{name: name, mounter: mount.NewSafeFormatAndMount(mount.New(""), utilexec.New()),
		mountInfo: "/proc/self/mountinfo", deviceOf: deviceOf}
}

func (n *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

func (n *nodeServer) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return plugin.Nodes(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), nil
}

// use of a volume on the node, as the mount table has it.
type use struct {
	// device is the volume's disk, or that of its paths, empty without a session.
	device string
	// node of the device, to which the device may be a link.
	node string
	// at is the mount at the path in question, nil if there is none.
	at *mount.MountInfo
	// mounts of the disk: filesystems, and the node of a device.
	mounts []mount.MountInfo
}

func (n *nodeServer) use(volume, path string) (use, error) {
	device, err := n.deviceOf(target(volume))
	if err != nil {
		return use{}, err
	}
	table, err := mount.ParseMountInfo(n.mountInfo)
	if err != nil {
		return use{}, err
	}
	u := use{device: device, node: device}
	if node, err := filepath.EvalSymlinks(device); err == nil {
		u.node = node
	}
	for i, m := range table {
		if m.MountPoint == filepath.Clean(path) {
			u.at = &table[i]
		}
		if u.has(m) {
			u.mounts = append(u.mounts, m)
		}
	}
	return u, nil
}

// has reports whether the mount is of the disk.
func (u use) has(m mount.MountInfo) bool {
	return u.device != "" && (m.Source == u.device || m.FsType == "devtmpfs" && m.Root == "/"+filepath.Base(u.node))
}

// check fails if the path has a mount of something else. Without a session it cannot be known.
func (u use) check(volume string) error {
	if u.at != nil && u.device != "" && !u.has(*u.at) {
		return status.Errorf(codes.FailedPrecondition, "path %q has a mount of %s, not of volume %q", u.at.MountPoint,
			u.at.Source, volume)
	}
	return nil
}

// checkContext fails unless the publish context is that of the volume.
func checkContext(volume string, context map[string]string) error {
	if err := plugin.Require(portalsKey, context[portalsKey], targetKey, context[targetKey]); err != nil {
		return err
	}
	if context[targetKey] != target(volume) {
		return status.Errorf(codes.NotFound, "volume %q has no target %q", volume, context[targetKey])
	}
	return nil
}

// NodeStageVolume logs in and, unless the volume is a device, formats its disk if that is empty, and mounts it.
func (n *nodeServer) NodeStageVolume(ctx context.Context,
	request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	volume, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if err := plugin.Require("volume id", volume, "staging target path", staging); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := checkContext(volume, request.GetPublishContext()); err != nil {
		return nil, err
	}
	portals := strings.Split(request.GetPublishContext()[portalsKey], ",")
	sessions, err := login(ctx, portals, target(volume))
	if err != nil {
		return nil, err
	}
	device, err := awaitDevice(ctx, target(volume), sessions, len(portals) > 1)
	wanted := request.GetVolumeCapability().GetMount()
	if err != nil || wanted == nil {
		return &csi.NodeStageVolumeResponse{}, err
	}
	u, err := n.use(volume, staging)
	if err == nil {
		err = u.check(volume)
	}
	if err != nil || u.at != nil {
		return &csi.NodeStageVolumeResponse{}, err
	}
	if err := n.mounter.FormatAndMount(device, staging, wanted.GetFsType(), wanted.GetMountFlags()); err != nil {
		return nil, fmt.Errorf("staging %s: %w", device, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume unmounts the volume and logs out.
func (n *nodeServer) NodeUnstageVolume(ctx context.Context,
	request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	volume, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if err := plugin.Require("volume id", volume, "staging target path", staging); err != nil {
		return nil, err
	}
	u, err := n.use(volume, staging)
	if err != nil {
		return nil, err
	}
	if err := u.check(volume); err != nil {
		return nil, err
	}
	for _, m := range u.mounts {
		if m.MountPoint != filepath.Clean(staging) {
			return nil, status.Errorf(codes.FailedPrecondition, "the volume is published at %q", m.MountPoint)
		}
	}
	if u.at != nil {
		if err := n.mounter.Unmount(staging); err != nil {
			return nil, err
		}
	}
	if err := removeMap(ctx, u.device); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, logout(ctx, target(volume))
}

// checkPublish returns what is there of the volume already, or refuses the publication.
func (n *nodeServer) checkPublish(request *csi.NodePublishVolumeRequest) (use, error) {
	volume, staging, at := request.GetVolumeId(), request.GetStagingTargetPath(), request.GetTargetPath()
	if err := plugin.Require("volume id", volume, "staging target path", staging, "target path", at); err != nil {
		return use{}, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return use{}, err
	}
	if err := checkContext(volume, request.GetPublishContext()); err != nil {
		return use{}, err
	}
	u, err := n.use(volume, at)
	if err == nil {
		err = u.check(volume)
	}
	if err != nil {
		return use{}, err
	}
	mounted := func(m mount.MountInfo) bool { return m.MountPoint == filepath.Clean(staging) }
	staged := request.GetVolumeCapability().GetBlock() != nil || slices.ContainsFunc(u.mounts, mounted)
	mode := request.GetVolumeCapability().GetAccessMode().GetMode()
	elsewhere := slices.ContainsFunc(u.mounts, func(m mount.MountInfo) bool {
		return !mounted(m) && m.MountPoint != filepath.Clean(at)
	})
	switch {
	case u.device == "" || !staged:
		err = status.Errorf(codes.FailedPrecondition, "volume %q is not staged at %q", volume, staging)
	case u.at != nil && slices.Contains(u.at.MountOptions, "ro") != request.GetReadonly():
		err = status.Errorf(codes.AlreadyExists, "target %q is published with read-only %t", at, !request.GetReadonly())
	case mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER && elsewhere:
		err = status.Errorf(codes.FailedPrecondition, "the volume has a single writer, at another path than %q", at)
	}
	return u, err
}

// NodePublishVolume binds the staged mount, or the disk, to the target.
func (n *nodeServer) NodePublishVolume(_ context.Context,
	request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	u, err := n.checkPublish(request)
	if err != nil || u.at != nil {
		return &csi.NodePublishVolumeResponse{}, err
	}
	source, at := request.GetStagingTargetPath(), request.GetTargetPath()
	var made bool
	if request.GetVolumeCapability().GetBlock() != nil {
		source = u.device
		made, err = plugin.MakeFile(at)
	} else {
		made, err = plugin.MakeDir(at)
	}
	if err != nil {
		return nil, err
	}
	options := []string{"bind"}
	if request.GetReadonly() {
		options = append(options, "ro")
	}
	err = n.mounter.Mount(source, at, "", options)
	if err != nil && made {
		err = errors.Join(err, os.Remove(at))
	}
	return &csi.NodePublishVolumeResponse{}, err
}

// NodeUnpublishVolume unmounts the target and removes it.
func (n *nodeServer) NodeUnpublishVolume(_ context.Context,
	request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	volume, at := request.GetVolumeId(), request.GetTargetPath()
	if err := plugin.Require("volume id", volume, "target path", at); err != nil {
		return nil, err
	}
	u, err := n.use(volume, at)
	if err == nil {
		err = u.check(volume)
	}
	if err == nil {
		err = mount.CleanupMountPoint(at, n.mounter, true)
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeGetVolumeStats asks the filesystem, or the disk for its size.
func (n *nodeServer) NodeGetVolumeStats(_ context.Context,
	request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, at := request.GetVolumeId(), request.GetVolumePath()
	if err := plugin.Require("volume id", volume, "volume path", at); err != nil {
		return nil, err
	}
	u, err := n.use(volume, at)
	switch {
	case err != nil:
		return nil, err
	case u.at == nil || !u.has(*u.at):
		return nil, status.Errorf(codes.NotFound, "volume %q is not published at %q", volume, at)
	case u.at.Source == u.device:
		return plugin.Figures(at)
	}
	return plugin.DeviceFigures(u.node)
}
