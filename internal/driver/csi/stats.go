/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// Stats calls NodeGetVolumeStats and, if the driver reports the health of volumes, NodeGetVolumeHealth. For a driver
// with neither it returns an Invalid error with the code Unimplemented, without a call.
func (d *Driver) Stats(ctx context.Context, req driver.StatsRequest) (driver.Stats, error) {
	figures := d.desc.has(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	health := d.desc.has(csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
	if !figures && !health {
		return driver.Stats{}, &driver.Error{
			Outcome: driver.Invalid, Code: codes.Unimplemented.String(),
			Message: "driver " + d.name + " reports no volume stats",
		}
	}
	var stats driver.Stats
	if figures {
		if err := d.readUsage(ctx, req, &stats); err != nil {
			return driver.Stats{}, err
		}
	}
	if health {
		if err := d.readHealth(ctx, req, &stats); err != nil {
			return driver.Stats{}, err
		}
	}
	return stats, nil
}

func (d *Driver) readUsage(ctx context.Context, req driver.StatsRequest, stats *driver.Stats) error {
	request := &csi.NodeGetVolumeStatsRequest{VolumeId: req.Handle, VolumePath: req.Path}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	return d.call(ctx, nodeStats, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeGetVolumeStats(ctx, request)
		if err != nil {
			return err
		}
		for _, usage := range answer.GetUsage() {
			addUsage(stats, usage)
		}
		if d.desc.has(volumeCondition) {
			stats.Abnormal, stats.Message = oldCondition(answer.ProtoReflect().GetUnknown())
		}
		return nil
	})
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

func (d *Driver) readHealth(ctx context.Context, req driver.StatsRequest, stats *driver.Stats) error {
	request := &csi.NodeGetVolumeHealthRequest{VolumeId: req.Handle, VolumePublishPath: req.Path}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	return d.call(ctx, nodeHealth, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeGetVolumeHealth(ctx, request)
		if err != nil {
			return err
		}
		var messages []string
		for _, entry := range answer.GetVolumeHealth().GetHealthStatuses() {
			what := entry.GetStatus().String() + " " + entry.GetReason() // how bad it is, and the driver's word for it
			messages = append(messages, strings.TrimSuffix(what+": "+entry.GetMessage(), ": "))
		}
		if len(messages) > 0 {
			stats.Abnormal, stats.Message = true, strings.Join(messages, "; ")
		}
		return nil
	})
}

// oldCondition reads the volume condition of an answer before version 1.13 of the specification: field 2, a message of
// abnormal (field 1) and message (field 2). It ignores what it cannot parse.
func oldCondition(unknown []byte) (abnormal bool, message string) {
	condition := lengthDelimited(unknown, 2)
	message = string(lengthDelimited(condition, 2))
	for len(condition) > 0 {
		number, wireType, n := protowire.ConsumeTag(condition)
		if n < 0 {
			return false, ""
		}
		condition = condition[n:]
		if number == 1 && wireType == protowire.VarintType {
			value, n := protowire.ConsumeVarint(condition)
			return n > 0 && value != 0, message
		}
		if n = protowire.ConsumeFieldValue(number, wireType, condition); n < 0 {
			return false, ""
		}
		condition = condition[n:]
	}
	return false, message
}

// lengthDelimited returns the bytes of the field with that number, or none.
func lengthDelimited(message []byte, wanted protowire.Number) []byte {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if number == wanted && wireType == protowire.BytesType {
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return nil
			}
			return value
		}
		if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
