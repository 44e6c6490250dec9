/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// volumeCondition was capability 4 before version 1.13 of the specification. Drivers in use still report it.
const volumeCondition csi.NodeServiceCapability_RPC_Type = 4

// description is the driver's description of itself at its registration.
type description struct {
	nodeID       string
	maxVolumes   int64
	capabilities map[csi.NodeServiceCapability_RPC_Type]bool
}

func (d *description) has(capability csi.NodeServiceCapability_RPC_Type) bool {
	return d.capabilities[capability]
}

// line is the driver's element of a NodeVolumeState.
func (d *description) line(name string) volumesv1alpha1.NodeDriver {
	line := volumesv1alpha1.NodeDriver{Name: name, NodeID: d.nodeID}
	for capability := range d.capabilities {
		line.Capabilities = append(line.Capabilities, capabilityName(capability))
	}
	slices.Sort(line.Capabilities)
	line.Capabilities = line.Capabilities[:min(len(line.Capabilities), volumesv1alpha1.MaxCapabilities)]
	if d.maxVolumes > 0 {
		line.MaxVolumes = &d.maxVolumes
	}
	return line
}

func capabilityName(capability csi.NodeServiceCapability_RPC_Type) string {
	if capability == volumeCondition {
		return "VOLUME_CONDITION"
	}
	return capability.String()
}

// probe reads the driver's description. It waits until the driver listens, because the socket exists before that.
func (d *Driver) probe(ctx context.Context) (*description, error) {
	patient := &Driver{name: d.name, endpoint: d.endpoint, dial: slices.Concat(d.dial, []grpc.DialOption{redial})}
	found := &description{capabilities: map[csi.NodeServiceCapability_RPC_Type]bool{}}
	err := patient.call(ctx, nodeInfo, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(true))
		found.nodeID, found.maxVolumes = info.GetNodeId(), info.GetMaxVolumesPerNode()
		return err
	})
	if err == nil && len(found.nodeID) > volumesv1alpha1.MaxNodeIDLength {
		err = fmt.Errorf("driver %s names the node with %d bytes; the CSI specification allows %d",
			d.name, len(found.nodeID), volumesv1alpha1.MaxNodeIDLength)
	}
	if err != nil {
		return nil, err
	}
	err = patient.call(ctx, nodeCaps, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer,
			err := csi.NewNodeClient(conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{}, grpc.WaitForReady(true))
		for _, capability := range answer.GetCapabilities() {
			if t := capability.GetRpc().GetType(); t != csi.NodeServiceCapability_RPC_UNKNOWN {
				found.capabilities[t] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// volumeCapability describes in CSI terms how a volume will be used.
func (d *description) volumeCapability(v driver.Volume, options []string, fsGroup *int64) *csi.VolumeCapability {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: d.accessMode(v.AccessMode)}}
	if v.Mode == corev1.PersistentVolumeBlock {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability
	}
	mount := &csi.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: options}
	if fsGroup != nil && d.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		mount.VolumeMountGroup = strconv.FormatInt(*fsGroup, 10)
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return capability
}

// accessMode maps an access mode as the kubelet does. Only drivers with the capability get the single-node modes.
func (d *description) accessMode(mode corev1.PersistentVolumeAccessMode) csi.VolumeCapability_AccessMode_Mode {
	fine := d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	switch {
	case mode == corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && fine:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == corev1.ReadWriteOnce && fine:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOnce, mode == corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	default:
		return csi.VolumeCapability_AccessMode_UNKNOWN
	}
}
