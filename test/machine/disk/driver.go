/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package disk is a CSI driver over the SCSI disks of virtual machines. The controller, outside, plugs a disk into the
// machine, as that of a cloud does. The node plugin, inside, finds it by its serial number and uses it as many drivers
// do: with mount-utils, which formats a disk on which blkid finds nothing.
package disk

import (
	"context"
	"path"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

const (
	// DriverName is the driver's registered name.
	DriverName = "disk.csi.hawser.io"
	// ParameterMapper is a parameter of a StorageClass, and an attribute of its volumes. If it is "true", the node plugin
	// puts a device of the device mapper over the disk, as drivers do that encrypt.
	ParameterMapper = "mapper"
	// ParameterFUSE likewise has the node plugin mount the disk by a process of its own (fuse2fs).
	ParameterFUSE = "fuse"
	// SerialKey is the key of the disk's serial number in the publish context.
	SerialKey = "serial"
	// InsideVariable of the tests of this package has the node in whose machine they run, and the address that the
	// controller has there.
	InsideVariable = "HAWSER_TEST_DISK"
)

// ServeNode serves the node plugin of a node below the kubelet's directory, with the faults of a directory (package
// faults). It returns with an error only.
func ServeNode(node, kubeletDir, faultsDir string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		target := faults.Target{Method: path.Base(info.FullMethod), Node: node}
		if r, ok := request.(interface{ GetVolumeId() string }); ok {
			target.Volume = r.GetVolumeId()
		}
		return faults.Do(ctx, faultsDir, target, func(ctx context.Context) (any, error) { return handle(ctx, request) })
	}))
	csi.RegisterNodeServer(server, newNodeServer(node))
	return plugin.ServeNode(server, DriverName, kubeletDir)
}
