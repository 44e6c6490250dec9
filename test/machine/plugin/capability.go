/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plugin

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CheckCapabilities refuses an empty list, and what check does.
func CheckCapabilities(capabilities []*csi.VolumeCapability, check func(*csi.VolumeCapability) error) error {
	if len(capabilities) == 0 {
		return status.Error(codes.InvalidArgument, "volume capabilities are required")
	}
	for _, capability := range capabilities {
		if err := check(capability); err != nil {
			return err
		}
	}
	return nil
}

// CheckCapability accepts filesystems and devices of one node.
func CheckCapability(capability *csi.VolumeCapability) error {
	if capability.GetMount() == nil && capability.GetBlock() == nil {
		return status.Error(codes.InvalidArgument, "an access type is required")
	}
	switch mode := capability.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return nil
	default:
		return status.Errorf(codes.InvalidArgument, "a volume has one node, so its access mode cannot be %s", mode)
	}
}

// Validate answers whether check accepts the capabilities of a volume. find fails if there is no such volume.
func Validate(request *csi.ValidateVolumeCapabilitiesRequest, find func(volume string) error,
	check func(*csi.VolumeCapability) error) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := Require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	capabilities := request.GetVolumeCapabilities()
	refused := CheckCapabilities(capabilities, check)
	if len(capabilities) == 0 {
		return nil, refused
	}
	if err := find(request.GetVolumeId()); err != nil {
		return nil, err
	}
	if refused != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: refused.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: capabilities}}, nil
}
