/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package plugin serves the CSI drivers of virtual machines: their sockets, their registration, and who they are.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Identity is what controller and node plugin of a driver have in common.
type Identity struct {
	csi.UnimplementedIdentityServer
	// Name is the driver's registered name.
	Name string
}

// GetPluginInfo implements csi.IdentityServer.
func (i Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.Name, VendorVersion: "v1"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (Identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// Probe implements csi.IdentityServer.
func (Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

type registrant struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrant) NotifyRegistrationStatus(context.Context,
	*registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// Controllers are the capabilities of a controller with these kinds of calls.
func Controllers(kinds ...csi.ControllerServiceCapability_RPC_Type) *csi.ControllerGetCapabilitiesResponse {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range kinds {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}})
	}
	return answer
}

// Nodes are the capabilities of a node plugin with these kinds of calls.
func Nodes(kinds ...csi.NodeServiceCapability_RPC_Type) *csi.NodeGetCapabilitiesResponse {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range kinds {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}})
	}
	return answer
}

// Socket of a node plugin below the kubelet's directory.
func Socket(kubeletDir, driver string) string {
	return filepath.Join(kubeletDir, "plugins", driver, "csi.sock")
}

// ServeNode serves a node plugin below the kubelet's directory, and registers it. The server has its services except
// the identity. It returns with an error only.
func ServeNode(server *grpc.Server, driver, kubeletDir string) error {
	socket := Socket(kubeletDir, driver)
	csi.RegisterIdentityServer(server, Identity{Name: driver})
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- Register(driver, kubeletDir) }()
	return <-ended
}

// Register registers the node plugin that another process serves at its Socket, as node-driver-registrar does. It
// returns with an error only.
func Register(driver, kubeletDir string) error {
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, registrant{name: driver, endpoint: Socket(kubeletDir, driver)})
	listener, err := listen(filepath.Join(kubeletDir, "plugins_registry", driver+"-reg.sock"))
	if err != nil {
		return err
	}
	return registrar.Serve(listener)
}

// ServeController serves a controller at a socket until the returned function is called. The server has its services
// except the identity.
func ServeController(server *grpc.Server, driver, socket string) (stop func(), err error) {
	csi.RegisterIdentityServer(server, Identity{Name: driver})
	listener, err := listen(socket)
	if err != nil {
		return nil, err
	}
	go func() { _ = server.Serve(listener) }() // returns when stop is called
	return server.Stop, nil
}

// listen replaces the socket of an earlier process.
func listen(socket string) (net.Listener, error) {
	err := os.MkdirAll(filepath.Dir(socket), 0o755)
	if err == nil {
		err = os.Remove(socket)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("preparing socket %s: %w", socket, err)
	}
	return net.Listen("unix", socket)
}
