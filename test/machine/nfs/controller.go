/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/recorder"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

// Controller makes and removes volumes: directories of what servers export.
type Controller struct {
	csi.UnimplementedControllerServer
	// Dir has its ledger, and a directory of each node with the node's.
	Dir string

	mu      sync.Mutex
	servers map[string]*Server
}

// Serve serves the controller at a socket until the returned function is called.
func (c *Controller) Serve(socket string) (stop func(), err error) {
	server := grpc.NewServer(grpc.UnaryInterceptor(recorder.New(c.Dir, "controller", "").Intercept))
	csi.RegisterControllerServer(server, c)
	return plugin.ServeController(server, DriverName, socket)
}

// Use has volumes of that parameter on the server.
func (c *Controller) Use(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[string]*Server{}
	}
	c.servers[s.Name] = s
}

func (c *Controller) server(name string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[name]
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return plugin.Controllers(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), nil
}

// id of a volume, which names its server and its directory.
func id(server, directory string) string { return server + "#" + directory }

func parseID(volume string) (server, directory string, err error) {
	server, directory, found := strings.Cut(volume, "#")
	if !found || directory == "" || strings.ContainsAny(directory, "/'") {
		return "", "", status.Errorf(codes.NotFound, "no volume has the ID %q", volume)
	}
	return server, directory, nil
}

// CreateVolume makes a directory. Its name follows from the volume's. The export has the size of its disk, so there are
// no limits.
func (c *Controller) CreateVolume(ctx context.Context,
	request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := plugin.Require("name", request.GetName()); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapabilities(request.GetVolumeCapabilities(), checkCapability); err != nil {
		return nil, err
	}
	s := c.server(request.GetParameters()[ParameterServer])
	if s == nil {
		return nil, status.Errorf(codes.InvalidArgument, "no server %q", request.GetParameters()[ParameterServer])
	}
	size := max(request.GetCapacityRange().GetRequiredBytes(), 1<<20)
	directory := fmt.Sprintf("v%x", sha256.Sum256([]byte(request.GetName())))[:16]
	sizeFile := path.Join(s.sizes(), directory)
	out, err := s.Run(ctx, fmt.Sprintf("mkdir -p '%s' && { [ -e '%s' ] || echo %d >'%[2]s'; } && cat '%[2]s'",
		s.directory(directory), sizeFile, size))
	if err != nil {
		return nil, err
	}
	if was := strings.TrimSpace(out); was != fmt.Sprint(size) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %q has %s bytes", request.GetName(), was)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id(s.Name, directory), CapacityBytes: size,
		VolumeContext: map[string]string{addressKey: s.Address(), directoryKey: s.directory(directory)}}}, nil
}

// DeleteVolume removes a directory, which no node may have published.
func (c *Controller) DeleteVolume(ctx context.Context,
	request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := plugin.Require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	name, directory, err := parseID(request.GetVolumeId())
	s := c.server(name)
	if err != nil || s == nil {
		return &csi.DeleteVolumeResponse{}, nil
	}
	published, err := plugin.Published(c.Dir)
	if err != nil {
		return nil, err
	}
	if at := published[request.GetVolumeId()]; len(at) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is published at %s", strings.Join(at, ", "))
	}
	_, err = s.Run(ctx, fmt.Sprintf("rm -rf '%s' '%s'", s.directory(directory), path.Join(s.sizes(), directory)))
	return &csi.DeleteVolumeResponse{}, err
}

// ControllerExpandVolume has nothing to do: the volume has no limit.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := plugin.Require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if request.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "a capacity range is required")
	}
	if err := c.find(ctx, request.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}, nil
}

// find fails unless the volume is there.
func (c *Controller) find(ctx context.Context, volume string) error {
	name, directory, err := parseID(volume)
	if err != nil {
		return err
	}
	s := c.server(name)
	if s != nil {
		_, err = s.Run(ctx, fmt.Sprintf("test -d '%s'", s.directory(directory)))
	}
	if s == nil || err != nil {
		return status.Errorf(codes.NotFound, "no volume has the ID %q: %v", volume, err)
	}
	return nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return plugin.Validate(request, func(volume string) error { return c.find(ctx, volume) }, checkCapability)
}

// checkCapability accepts every access mode of a filesystem.
func checkCapability(capability *csi.VolumeCapability) error {
	if capability.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "a volume of NFS is a filesystem, so it can only be mounted")
	}
	if capability.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN {
		return status.Error(codes.InvalidArgument, "an access mode is required")
	}
	return nil
}
