/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// Stats calls NodeGetVolumeStats.
func (d *Driver) Stats(ctx context.Context, req driver.StatsRequest) (driver.Stats, error) {
	if err := d.supports(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, "volume stats"); err != nil {
		return driver.Stats{}, err
	}
	request := &csi.NodeGetVolumeStatsRequest{VolumeId: req.Handle, VolumePath: req.Path}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	var stats driver.Stats
	err := d.call(ctx, nodeStats, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeGetVolumeStats(ctx, request)
		if err != nil {
			return err
		}
		for _, usage := range answer.GetUsage() {
			addUsage(&stats, usage)
		}
		if d.desc.has(volumeCondition) {
			stats.HasHealth, stats.Problems = true, oldCondition(answer.ProtoReflect().GetUnknown())
		}
		return nil
	})
	return stats, err
}

// supports returns an error for a driver without the capability.
func (d *Driver) supports(capability csi.NodeServiceCapability_RPC_Type, what string) error {
	if d.desc.has(capability) {
		return nil
	}
	return &driver.Error{Outcome: driver.Invalid, Code: codes.Unimplemented.String(),
		Message: "driver " + d.name + " reports no " + what}
}

func addUsage(stats *driver.Stats, usage *csi.VolumeUsage) {
	switch usage.GetUnit() {
	case csi.VolumeUsage_BYTES:
		stats.Capacity = quantity(usage.GetTotal())
		stats.Used = quantity(usage.GetUsed())
		stats.Available = quantity(usage.GetAvailable())
	case csi.VolumeUsage_INODES:
		total, used := usage.GetTotal(), usage.GetUsed()
		stats.Inodes, stats.InodesUsed = &total, &used
	}
}

func quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }
