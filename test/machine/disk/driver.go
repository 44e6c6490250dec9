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
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hawser-io/hawser/test/csiloop/faults"
)

const (
	// DriverName is the driver's registered name.
	DriverName = "disk.csi.hawser.io"
	// ParameterMapper is a parameter of a StorageClass, and an attribute of its volumes. If it is "true", the node plugin
	// puts a device of the device mapper over the disk, as drivers do that encrypt.
	ParameterMapper = "mapper"
	// SerialKey is the key of the disk's serial number in the publish context.
	SerialKey = "serial"
)

// Identity is what controller and node plugin have in common.
type Identity struct {
	csi.UnimplementedIdentityServer
}

// GetPluginInfo implements csi.IdentityServer.
func (Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: DriverName, VendorVersion: "v1"}, nil
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
	endpoint string
}

func (r registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: DriverName, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrant) NotifyRegistrationStatus(context.Context,
	*registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// ServeNode serves the node plugin of a node below the kubelet's directory, with the faults of a directory (package
// faults). It returns with an error only.
func ServeNode(node, kubeletDir, faultsDir string) error {
	socket := filepath.Join(kubeletDir, "plugins", DriverName, "csi.sock")
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		target := faults.Target{Method: path.Base(info.FullMethod), Node: node}
		if r, ok := request.(interface{ GetVolumeId() string }); ok {
			target.Volume = r.GetVolumeId()
		}
		return faults.Do(ctx, faultsDir, target, func(ctx context.Context) (any, error) { return handle(ctx, request) })
	}))
	csi.RegisterIdentityServer(server, Identity{})
	csi.RegisterNodeServer(server, newNodeServer(node))
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, registrant{endpoint: socket})
	ended := make(chan error)
	for server, socket := range map[*grpc.Server]string{server: socket,
		registrar: filepath.Join(kubeletDir, "plugins_registry", DriverName+"-reg.sock")} {
		listener, err := Listen(socket)
		if err != nil {
			return err
		}
		go func() { ended <- server.Serve(listener) }()
	}
	return <-ended
}

// Listen replaces the socket of an earlier process.
func Listen(socket string) (net.Listener, error) {
	err := os.MkdirAll(filepath.Dir(socket), 0o755)
	if err == nil {
		err = os.Remove(socket)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("preparing socket %s: %w", socket, err)
	}
	return net.Listen("unix", socket)
}
