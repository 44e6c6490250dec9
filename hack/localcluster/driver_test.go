/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName  = "small.csi.hawser.io"
	topologyKey = "topology.small.csi.hawser.io/node"
)

// driver is a minimal CSI driver for the launcher's parts. It counts volumes and stores no data.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	mutex   sync.Mutex
	volumes map[string]*csi.CreateVolumeRequest
	// outcomes receives the registrar's notifications.
	outcomes chan *registration.RegistrationStatus
}

func newDriver() *driver {
	return &driver{
		volumes:  map[string]*csi.CreateVolumeRequest{},
		outcomes: make(chan *registration.RegistrationStatus, 100),
	}
}

// serve answers on a socket until the test ends or the server is stopped.
func serve(t *testing.T, socket string, register func(*grpc.Server)) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	go func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(server.Stop)
	return server
}

func (d *driver) serveController(t *testing.T, socket string) {
	t.Helper()
	serve(t, socket, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, d)
		csi.RegisterControllerServer(s, d)
	})
}

// serveNode runs the driver on a node and registers it, as its registrar would.
func (d *driver) serveNode(t *testing.T, node, kubeletDir string) (registrationServer *grpc.Server) {
	t.Helper()
	plugins := filepath.Join(kubeletDir, "plugins", "small")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	endpoint := filepath.Join(plugins, "csi.sock")
	serve(t, endpoint, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, d)
		csi.RegisterNodeServer(s, &nodeServer{node: node})
	})
	return serve(t, filepath.Join(kubeletDir, "plugins_registry", "small-reg.sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, &registrationOf{driver: d, endpoint: endpoint})
	})
}

func (d *driver) has(volume string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.volumes[volume] != nil
}

func (d *driver) request(volume string) *csi.CreateVolumeRequest {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.volumes[volume]
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
	}}, nil
}

func (d *driver) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.volumes["handle-"+request.GetName()] = request
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           "handle-" + request.GetName(),
		CapacityBytes:      request.GetCapacityRange().GetRequiredBytes(),
		VolumeContext:      map[string]string{"colour": request.GetParameters()["colour"]},
		AccessibleTopology: request.GetAccessibilityRequirements().GetPreferred()[:1],
	}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.volumes, request.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ControllerPublishVolume(_ context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"to": request.GetNodeId()}}, nil
}

func (d *driver) ControllerUnpublishVolume(context.Context,
	*csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume leaves filesystems to the node and expands devices completely.
func (d *driver) ControllerExpandVolume(_ context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         request.GetCapacityRange().GetRequiredBytes(),
		NodeExpansionRequired: request.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

type nodeServer struct {
	csi.UnimplementedNodeServer
	node string
}

func (n *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId:             "id-of-" + n.node,
		MaxVolumesPerNode:  7,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{topologyKey: n.node}},
	}, nil
}

type registrationOf struct {
	registration.UnimplementedRegistrationServer
	driver   *driver
	endpoint string
}

func (r *registrationOf) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrationOf) NotifyRegistrationStatus(_ context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.driver.outcomes <- status
	return &registration.RegistrationStatusResponse{}, nil
}
