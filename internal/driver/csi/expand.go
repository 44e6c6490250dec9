/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// Expand calls NodeExpandVolume. A driver without EXPAND_VOLUME has nothing to do on a node: Expand then returns the
// wanted capacity.
func (d *Driver) Expand(ctx context.Context, req driver.ExpandRequest) (resource.Quantity, error) {
	if !d.desc.has(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return req.Capacity, nil
	}
	request := &csi.NodeExpandVolumeRequest{
		VolumeId:         req.Handle,
		VolumePath:       req.Path,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: req.Capacity.Value()},
		VolumeCapability: d.desc.volumeCapability(req.Volume, nil, nil),
		Secrets:          req.Secrets,
	}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	capacity := req.Capacity
	err := d.call(ctx, nodeExpand, req.Secrets, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeExpandVolume(ctx, request)
		if bytes := answer.GetCapacityBytes(); bytes > 0 {
			capacity = *resource.NewQuantity(bytes, resource.BinarySI)
		}
		return err
	})
	return capacity, err
}
