/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/recorder"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

// Controller makes and removes volumes, which are targets with one disk, and lets their nodes log in.
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

// The ID of a volume is the last part of its target's name: that of its server, and its own there.
func id(server, name string) string { return server + "." + name }

func serverOf(volume string) string {
	server, _, _ := strings.Cut(volume, ".")
	return server
}

func nameOf(volume string) string {
	_, name, _ := strings.Cut(volume, ".")
	return name
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return plugin.Controllers(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), nil
}

// CreateVolume makes a target with a disk. Its name follows from the volume's.
func (c *Controller) CreateVolume(ctx context.Context,
	request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := plugin.Require("name", request.GetName()); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapabilities(request.GetVolumeCapabilities(), plugin.CheckCapability); err != nil {
		return nil, err
	}
	s := c.server(request.GetParameters()[ParameterServer])
	if s == nil {
		return nil, status.Errorf(codes.InvalidArgument, "no server %q", request.GetParameters()[ParameterServer])
	}
	size := max(request.GetCapacityRange().GetRequiredBytes(), 1<<20)
	name := fmt.Sprintf("v%x", sha256.Sum256([]byte(request.GetName())))[:16]
	out, err := s.run(ctx, `exec 9>$dir/lock; flock 9; if [ ! -e $dir/%[1]s.tid ]; then
	truncate -s %[2]d $dir/%[1]s.img
	tid=$(cat $dir/*.tid 2>/dev/null | sort -n | tail -n 1)
	echo $((tid + 1)) >$dir/%[1]s.tid
	export_volume %[1]s
	sync -f $dir
fi
stat -c %%s $dir/%[1]s.img`, name, size)
	if err != nil {
		return nil, err
	}
	if was := strings.TrimSpace(out); was != fmt.Sprint(size) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %q has %s bytes", request.GetName(), was)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id(s.Name, name), CapacityBytes: size}}, nil
}

// DeleteVolume removes a volume, which no node may have attached.
func (c *Controller) DeleteVolume(ctx context.Context,
	request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := plugin.Require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	s, at, err := c.find(ctx, request.GetVolumeId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.DeleteVolumeResponse{}, nil
	case err != nil:
		return nil, err
	case at != "":
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is attached %s", at)
	}
	return &csi.DeleteVolumeResponse{}, s.do(ctx, "withdraw_volume %[1]s; rm $dir/%[1]s.tid $dir/%[1]s.img; sync -f $dir",
		nameOf(request.GetVolumeId()))
}

// find returns the volume's server, and how the volume is attached, empty if it is not.
func (c *Controller) find(ctx context.Context, volume string) (s *Server, attached string, err error) {
	s = c.server(serverOf(volume))
	if s == nil || nameOf(volume) == "" || strings.ContainsAny(nameOf(volume), "/'* ") {
		return nil, "", status.Errorf(codes.NotFound, "no volume has the ID %q", volume)
	}
	out, err := s.run(ctx, `if [ ! -e $dir/%[1]s.tid ]; then echo none
elif [ -e $dir/%[1]s.attached ]; then cat $dir/%[1]s.attached; fi`, nameOf(volume))
	if err == nil && strings.TrimSpace(out) == "none" {
		err = status.Errorf(codes.NotFound, "no volume has the ID %q", volume)
	}
	return s, strings.TrimSpace(out), err
}

// ControllerPublishVolume lets the node log in.
func (c *Controller) ControllerPublishVolume(ctx context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	volume, node := request.GetVolumeId(), request.GetNodeId()
	if err := plugin.Require("volume id", volume, "node id", node); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	s, at, err := c.find(ctx, volume)
	if err != nil {
		return nil, err
	}
	wanted := fmt.Sprintf("to %s, read-only %t", node, request.GetReadonly())
	switch {
	case s.Node != node:
		return nil, status.Errorf(codes.NotFound, "server %s has no way to node %q", s.Name, node)
	case at != "" && at != wanted:
		return nil, status.Errorf(codes.AlreadyExists, "the volume is attached %s", at)
	case at == "":
		err = s.do(ctx, "allow bind $(cat $dir/%[1]s.tid); "+
			"echo '%[2]s' >$dir/%[1]s.attached; sync -f $dir", nameOf(volume), wanted)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{portalsKey: s.portals(),
		targetKey: target(volume)}}, err
}

// ControllerUnpublishVolume ends that. A node that is logged in may still write.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context,
	request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	volume := request.GetVolumeId()
	if err := plugin.Require("volume id", volume); err != nil {
		return nil, err
	}
	s, at, err := c.find(ctx, volume)
	if status.Code(err) == codes.NotFound || err == nil && at == "" {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := s.run(ctx, `tid=$(cat $dir/%[1]s.tid)
if [ -n "$(admin --op show --mode conn --tid $tid)" ]; then echo busy; exit; fi
allow unbind $tid; rm $dir/%[1]s.attached; sync -f $dir`, nameOf(volume))
	if err == nil && strings.Contains(out, "busy") {
		err = status.Errorf(codes.FailedPrecondition, "the volume is attached %s and an initiator is logged in", at)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, err
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return plugin.Validate(request, func(volume string) error {
		_, _, err := c.find(ctx, volume)
		return err
	}, plugin.CheckCapability)
}
