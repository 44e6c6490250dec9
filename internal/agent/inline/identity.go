/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// csiVersion is the version of CSI that the plugin reports to the kubelet.
const csiVersion = "1.0.0"

// GetPluginInfo names the plugin.
func (p *Plugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: volumesv1alpha1.InlineDriver, VendorVersion: p.Version}, nil
}

// GetPluginCapabilities names no capability: there is no controller service.
func (p *Plugin) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe reports that the plugin is ready, because it serves only then.
func (p *Plugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// NodeGetInfo names the node. It has no limit: every volume counts for its own driver.
func (p *Plugin) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: p.NodeName}, nil
}

// NodeGetCapabilities names no capability: volumes are staged by the agent, not by the kubelet.
func (p *Plugin) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// registrar answers the kubelet's questions at the registration socket.
type registrar struct {
	registration.UnimplementedRegistrationServer
	*Plugin
}

var _ registration.RegistrationServer = registrar{}

// GetInfo names the plugin and where it serves.
func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: volumesv1alpha1.InlineDriver,
		Endpoint: r.socket(), SupportedVersions: []string{csiVersion}}, nil
}

// NotifyRegistrationStatus logs the outcome. A kubelet that has refused tries again by itself.
func (r registrar) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.Log.Info("the kubelet has registered the plugin for inline volumes")
	} else {
		r.Log.Info("the kubelet has not registered the plugin for inline volumes", "error", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
