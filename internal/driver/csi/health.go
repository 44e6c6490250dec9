/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// The specification requires that values which are not known here are ignored.
var (
	volumeHealth = map[csi.VolumeHealthErrorType]volumesv1alpha1.HealthStatus{
		csi.VolumeHealthErrorType_DEGRADED:     volumesv1alpha1.HealthDegraded,
		csi.VolumeHealthErrorType_INACCESSIBLE: volumesv1alpha1.HealthInaccessible,
		csi.VolumeHealthErrorType_DATA_LOSS:    volumesv1alpha1.HealthDataLoss,
	}
	storageHealth = map[csi.StorageHealthErrorType]volumesv1alpha1.HealthStatus{
		csi.StorageHealthErrorType_STORAGE_DEGRADED:    volumesv1alpha1.HealthStorageDegraded,
		csi.StorageHealthErrorType_STORAGE_UNREACHABLE: volumesv1alpha1.HealthStorageUnreachable,
	}
)

// VolumeHealth calls NodeGetVolumeHealth.
func (d *Driver) VolumeHealth(ctx context.Context, req driver.StatsRequest) ([]volumesv1alpha1.HealthProblem, error) {
	if err := d.supports(csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, "volume health"); err != nil {
		return nil, err
	}
	request := &csi.NodeGetVolumeHealthRequest{VolumeId: req.Handle, VolumePublishPath: req.Path}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	var problems []volumesv1alpha1.HealthProblem
	err := d.call(ctx, nodeHealth, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeGetVolumeHealth(ctx, request)
		for _, entry := range answer.GetVolumeHealth().GetHealthStatuses() {
			if status, known := volumeHealth[entry.GetStatus()]; known {
				problems = append(problems, volumesv1alpha1.HealthProblem{Status: status, Reason: entry.GetReason(),
					Message: entry.GetMessage()})
			}
		}
		return err
	})
	return problems, err
}

// StorageHealth calls NodeGetStorageHealth. There is no Secret for it: one that a driver needs belongs to a volume.
func (d *Driver) StorageHealth(ctx context.Context) ([]volumesv1alpha1.HealthProblem, error) {
	if err := d.supports(csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH, "storage health"); err != nil {
		return nil, err
	}
	var problems []volumesv1alpha1.HealthProblem
	err := d.call(ctx, nodeStorage, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		answer, err := csi.NewNodeClient(conn).NodeGetStorageHealth(ctx, &csi.NodeGetStorageHealthRequest{})
		for _, entry := range answer.GetBackendHealth() {
			if status, known := storageHealth[entry.GetStatus()]; known {
				problems = append(problems, volumesv1alpha1.HealthProblem{Status: status, Reason: entry.GetReason(),
					Message: entry.GetMessage(), AccessMode: kubernetesAccessMode(entry.GetVolumeCapability()),
					VolumeMode: kubernetesVolumeMode(entry.GetVolumeCapability())})
			}
		}
		return err
	})
	return problems, err
}

// kubernetesAccessMode is empty where the capability names none that Kubernetes has.
func kubernetesAccessMode(c *csi.VolumeCapability) corev1.PersistentVolumeAccessMode {
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return corev1.ReadWriteOnce
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return corev1.ReadWriteOncePod
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return corev1.ReadOnlyMany
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return corev1.ReadWriteMany
	default:
		return ""
	}
}

func kubernetesVolumeMode(c *csi.VolumeCapability) corev1.PersistentVolumeMode {
	switch {
	case c.GetBlock() != nil:
		return corev1.PersistentVolumeBlock
	case c.GetMount() != nil:
		return corev1.PersistentVolumeFilesystem
	}
	return ""
}

// oldCondition reads the volume condition of an answer before version 1.13 of the specification: field 2, a message of
// abnormal (field 1) and message (field 2). It ignores what it cannot parse.
func oldCondition(unknown []byte) []volumesv1alpha1.HealthProblem {
	condition := lengthDelimited(unknown, 2)
	problem := volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthAbnormal,
		Message: string(lengthDelimited(condition, 2))}
	for len(condition) > 0 {
		number, wireType, n := protowire.ConsumeTag(condition)
		if n < 0 {
			return nil
		}
		condition = condition[n:]
		if number == 1 && wireType == protowire.VarintType {
			if value, n := protowire.ConsumeVarint(condition); n > 0 && value != 0 {
				return []volumesv1alpha1.HealthProblem{problem}
			}
			return nil
		}
		if n = protowire.ConsumeFieldValue(number, wireType, condition); n < 0 {
			return nil
		}
		condition = condition[n:]
	}
	return nil
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
