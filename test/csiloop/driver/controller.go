/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/store"
)

// linkKey is the publish context's key for the path of the node's link.
const linkKey = "link"

type controller struct {
	csi.UnimplementedControllerServer
	store *store.Store
}

func (c *controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

func (c *controller) CreateVolume(_ context.Context,
	request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := require("name", request.GetName()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(request.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if request.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes are created empty, a content source is not supported")
	}
	wanted := request.GetCapacityRange()
	volume, err := c.store.Create(request.GetName(), wanted.GetRequiredBytes(), wanted.GetLimitBytes())
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: describe(volume, request.GetParameters())}, nil
}

func checkCapabilities(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return status.Error(codes.InvalidArgument, "volume capabilities are required")
	}
	for _, capability := range capabilities {
		if err := checkCapability(capability); err != nil {
			return err
		}
	}
	return nil
}

func describe(volume store.Volume, context map[string]string) *csi.Volume {
	return &csi.Volume{VolumeId: volume.ID, CapacityBytes: volume.Size, VolumeContext: context}
}

func (c *controller) DeleteVolume(_ context.Context,
	request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, c.store.Delete(request.GetVolumeId())
}

func (c *controller) ControllerPublishVolume(_ context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := require("volume id", request.GetVolumeId(), "node id", request.GetNodeId()); err != nil {
		return nil, err
	}
	capability := request.GetVolumeCapability()
	if err := checkCapability(capability); err != nil {
		return nil, err
	}
	mode := capability.GetAccessMode().GetMode()
	link, err := c.store.Publish(request.GetVolumeId(), request.GetNodeId(), store.Publication{
		AccessMode: mode.String(),
		Block:      capability.GetBlock() != nil,
		ReadOnly:   request.GetReadonly() || readerOnly(mode),
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{linkKey: link}}, nil
}

func (c *controller) ControllerUnpublishVolume(ctx context.Context,
	request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, c.store.Unpublish(ctx, request.GetVolumeId(), request.GetNodeId())
}

func (c *controller) ControllerExpandVolume(_ context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if request.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "a capacity range is required")
	}
	wanted := request.GetCapacityRange()
	size, err := c.store.Expand(request.GetVolumeId(), wanted.GetRequiredBytes(), wanted.GetLimitBytes())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume capabilities are required")
	}
	if _, err := c.store.Get(request.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(request.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      request.GetVolumeContext(),
		VolumeCapabilities: request.GetVolumeCapabilities(),
		Parameters:         request.GetParameters(),
	}}, nil
}

func (c *controller) GetCapacity(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(request.GetVolumeCapabilities()) > 0 && checkCapabilities(request.GetVolumeCapabilities()) != nil {
		return &csi.GetCapacityResponse{}, nil // no capacity for such volumes
	}
	available, err := c.store.Available()
	return &csi.GetCapacityResponse{AvailableCapacity: available}, err
}

// ListVolumes orders by creation time, so that a page's token stays valid while volumes are created or deleted.
func (c *controller) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if request.GetMaxEntries() < 0 {
		return nil, status.Error(codes.InvalidArgument, "max entries cannot be negative")
	}
	var after int64
	if token := request.GetStartingToken(); token != "" {
		var err error
		if after, err = strconv.ParseInt(token, 10, 64); err != nil {
			return nil, status.Errorf(codes.Aborted, "starting token %q is not one of this driver", token)
		}
	}
	volumes, err := c.store.List()
	if err != nil {
		return nil, err
	}
	answer := &csi.ListVolumesResponse{}
	for _, volume := range volumes {
		if volume.Created <= after {
			continue
		}
		if limit := int(request.GetMaxEntries()); limit > 0 && len(answer.Entries) == limit {
			answer.NextToken = strconv.FormatInt(after, 10)
			break
		}
		after = volume.Created
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{
			Volume: describe(volume, nil),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: publishedNodes(volume)},
		})
	}
	return answer, nil
}

func publishedNodes(volume store.Volume) []string {
	return slices.Sorted(maps.Keys(volume.Publications))
}

func (c *controller) ControllerGetVolume(_ context.Context,
	request *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	volume, err := c.store.Get(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: describe(volume, nil),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: publishedNodes(volume)},
	}, nil
}

func (c *controller) ControllerGetVolumeHealth(_ context.Context,
	request *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if _, err := c.store.Get(request.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: request.GetVolumeId()}}, nil
}
