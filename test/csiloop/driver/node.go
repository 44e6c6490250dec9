/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
	"github.com/hawser-io/hawser/test/csiloop/store"
)

// node serves one pseudo node. It reads the staged and published volumes from the kernel at every call.
type node struct {
	csi.UnimplementedNodeServer
	store      *store.Store
	id         string
	maxVolumes int64
}

func (n *node) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.id, MaxVolumesPerNode: n.maxVolumes}, nil
}

// devices are the node's loop devices for the volume, including those that were cut off.
func (n *node) devices(volume string) ([]loopdev.Device, error) {
	return loopdev.Find(n.store.Link(volume, n.id))
}

// present returns the node's devices of the volume. It fails if there are none and the volume is not published to it.
func (n *node) present(volume string) ([]loopdev.Device, error) {
	devices, err := n.devices(volume)
	if err != nil || len(devices) > 0 {
		return devices, err
	}
	if _, err := n.store.Get(volume); err != nil {
		return nil, err
	}
	return nil, status.Errorf(codes.NotFound, "volume %q is not staged on node %q", volume, n.id)
}
