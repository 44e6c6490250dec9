/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/test/machine/plugin"
)

// forceAfter is how long umount(8) may take before it is tried again with force.
const forceAfter = 30 * time.Second

type nodeServer struct {
	csi.UnimplementedNodeServer
	name    string
	mounter mount.MounterForceUnmounter
}

func newNodeServer(name string) *nodeServer {
	// Each mounter of Linux can unmount with force.
	return &nodeServer{name: name, mounter: mount.New("").(mount.MounterForceUnmounter)}
}

func (n *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

func (n *nodeServer) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return plugin.Nodes(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), nil
}

// source of a volume's mount, as in the mount table.
func source(attributes map[string]string) string {
	return attributes[addressKey] + ":" + attributes[directoryKey]
}

// checkPublish refuses what no publication can be, and what belongs to a driver with a stage.
func checkPublish(request *csi.NodePublishVolumeRequest) error {
	attributes := request.GetVolumeContext()
	if err := plugin.Require("volume id", request.GetVolumeId(), "target path", request.GetTargetPath()); err != nil {
		return err
	}
	if err := checkCapability(request.GetVolumeCapability()); err != nil {
		return err
	}
	if err := plugin.Require(addressKey, attributes[addressKey], directoryKey, attributes[directoryKey]); err != nil {
		return err
	}
	_, directory, err := parseID(request.GetVolumeId())
	switch {
	case err != nil:
		return err
	case path.Base(attributes[directoryKey]) != directory:
		return status.Errorf(codes.InvalidArgument, "the attributes are of volume %q", path.Base(attributes[directoryKey]))
	case request.GetStagingTargetPath() != "":
		return status.Error(codes.InvalidArgument, "a staging path for a driver that does not stage")
	case len(request.GetPublishContext()) > 0:
		return status.Error(codes.InvalidArgument, "a publish context from a driver that does not attach")
	}
	return nil
}

// NodePublishVolume mounts the volume's directory at the target. A volume for one writer is published once.
func (n *nodeServer) NodePublishVolume(_ context.Context,
	request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := checkPublish(request); err != nil {
		return nil, err
	}
	mounts, err := n.mounter.List()
	if err != nil {
		return nil, err
	}
	target, from := filepath.Clean(request.GetTargetPath()), source(request.GetVolumeContext())
	readOnly := request.GetReadonly()
	if there := plugin.Last(mounts, target); there != nil {
		return &csi.NodePublishVolumeResponse{}, isPublication(*there, from, readOnly)
	}
	mode := request.GetVolumeCapability().GetAccessMode().GetMode()
	other := slices.IndexFunc(mounts, func(m mount.MountPoint) bool { return m.Device == from })
	if mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER && other >= 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "the volume has a single writer, at %q", mounts[other].Path)
	}
	made, err := plugin.MakeDir(target)
	if err != nil {
		return nil, err
	}
	options := slices.Clone(request.GetVolumeCapability().GetMount().GetMountFlags())
	if readOnly {
		options = append(options, "ro")
	}
	if err := n.mounter.Mount(from, target, "nfs", options); err != nil {
		if made {
			err = errors.Join(err, os.Remove(target))
		}
		return nil, mountError(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// mountError finds out from the message of mount.nfs whether the server has the volume.
func mountError(err error) error {
	if strings.Contains(err.Error(), "No such file or directory") {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

// isPublication checks the mount that the target has already.
func isPublication(there mount.MountPoint, from string, readOnly bool) error {
	switch {
	case there.Device != from:
		return status.Errorf(codes.FailedPrecondition, "target %q has a mount of %s, not of %s", there.Path, there.Device,
			from)
	case slices.Contains(there.Opts, "ro") != readOnly:
		return status.Errorf(codes.AlreadyExists, "target %q is published with read-only %t", there.Path, !readOnly)
	}
	return nil
}

// NodeUnpublishVolume unmounts the target and removes it. mount-utils asks the server first, so the call hangs as long
// as that does not answer.
func (n *nodeServer) NodeUnpublishVolume(_ context.Context,
	request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	volume, target := request.GetVolumeId(), request.GetTargetPath()
	if err := plugin.Require("volume id", volume, "target path", target); err != nil {
		return nil, err
	}
	mounts, err := n.mounter.List()
	if err != nil {
		return nil, err
	}
	_, directory, err := parseID(volume)
	there := plugin.Last(mounts, filepath.Clean(target))
	if there != nil && (err != nil || path.Base(there.Device) != directory) {
		return nil, status.Errorf(codes.FailedPrecondition, "target %q has a mount of %s, not of volume %q", target,
			there.Device, volume)
	}
	return &csi.NodeUnpublishVolumeResponse{}, mount.CleanupMountWithForce(target, n.mounter, true, forceAfter)
}

// NodeGetVolumeStats asks the server.
func (n *nodeServer) NodeGetVolumeStats(_ context.Context,
	request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, at := request.GetVolumeId(), request.GetVolumePath()
	if err := plugin.Require("volume id", volume, "volume path", at); err != nil {
		return nil, err
	}
	mounts, err := n.mounter.List()
	if err != nil {
		return nil, err
	}
	_, directory, err := parseID(volume)
	there := plugin.Last(mounts, filepath.Clean(at))
	if err != nil || there == nil || path.Base(there.Device) != directory {
		return nil, status.Errorf(codes.NotFound, "volume %q is not published at %q", volume, at)
	}
	return plugin.Figures(at)
}
