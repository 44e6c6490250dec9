/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var supportedModes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

var supportedFilesystems = []string{"ext4", "xfs", "btrfs"}

// checkCapability returns InvalidArgument with the reason if the driver does not support this capability.
func checkCapability(capability *csi.VolumeCapability) error {
	mode := capability.GetAccessMode().GetMode()
	switch {
	case capability == nil:
		return status.Error(codes.InvalidArgument, "a volume capability is required")
	case !slices.Contains(supportedModes, mode):
		return status.Errorf(codes.InvalidArgument, "access mode %s is not supported", mode)
	case capability.GetBlock() != nil:
		return nil
	case capability.GetMount() == nil:
		return status.Error(codes.InvalidArgument, "a volume capability is either block or mount")
	case mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return status.Error(codes.InvalidArgument, "several nodes cannot write to one filesystem, only to a block volume")
	}
	fsType := capability.GetMount().GetFsType()
	if fsType != "" && !slices.Contains(supportedFilesystems, fsType) {
		return status.Errorf(codes.InvalidArgument, "filesystem %q is not supported, only %s are",
			fsType, strings.Join(supportedFilesystems, ", "))
	}
	return nil
}

func readerOnly(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// require returns InvalidArgument for the first named field that is empty. fields are name, value, name, ...
func require(fields ...string) error {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is required", fields[i])
		}
	}
	return nil
}
