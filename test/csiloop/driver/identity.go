/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"log/slog"

	"github.com/container-storage-interface/spec/lib/go/csi"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hawser-io/hawser/test/csiloop"
)

type identity struct {
	csi.UnimplementedIdentityServer
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: csiloop.DriverName, VendorVersion: "v1alpha1"}, nil
}

// GetPluginCapabilities answers for the whole driver: it has a controller, in this or another process.
func (i *identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
		}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrant answers the kubelet's plugin watcher.
type registrant struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r *registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              csiloop.DriverName,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrant) NotifyRegistrationStatus(_ context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		slog.Warn("registration was refused", "error", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
