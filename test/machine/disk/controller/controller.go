/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package controller is the part of the disk driver that plugs disks into machines.
package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/machine"
	"github.com/hawser-io/hawser/test/machine/disk"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

// Controller creates disks as files and plugs them into machines.
type Controller struct {
	csi.UnimplementedControllerServer
	// Dir contains the disks.
	Dir string

	mu sync.Mutex
	// machines by the name of their node.
	machines map[string]*machine.Machine
	// where each disk is plugged in.
	where map[string]string
}

// Serve serves the controller at a socket until the returned function is called.
func (c *Controller) Serve(socket string) (stop func(), err error) {
	server := grpc.NewServer()
	csi.RegisterControllerServer(server, c)
	return plugin.ServeController(server, disk.DriverName, socket)
}

// Use has disks of the node plugged into that machine.
func (c *Controller) Use(node string, m *machine.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machines == nil {
		c.machines, c.where = map[string]*machine.Machine{}, map[string]string{}
	}
	c.machines[node] = m
}

// File of a disk's content.
func (c *Controller) File(id string) string { return filepath.Join(c.Dir, id+".qcow2") }

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return plugin.Controllers(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME), nil
}

// CreateVolume creates an empty disk. Its ID follows from the volume's name, and is also a name that QEMU takes: it
// begins with a letter and is short.
func (c *Controller) CreateVolume(ctx context.Context,
	request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	id := fmt.Sprintf("disk%x", sha256.Sum256([]byte(request.GetName())))[:20]
	size := max(request.GetCapacityRange().GetRequiredBytes(), 1<<20)
	if _, err := os.Stat(c.File(id)); errors.Is(err, os.ErrNotExist) {
		if err := machine.CreateDisk(ctx, c.File(id), size); err != nil {
			return nil, err
		}
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: size,
		VolumeContext: request.GetParameters()}}, nil
}

// DeleteVolume deletes a disk that is nowhere plugged in.
func (c *Controller) DeleteVolume(_ context.Context,
	request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.where[request.GetVolumeId()]; node != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "the disk is plugged into %s", node)
	}
	if err := os.Remove(c.File(request.GetVolumeId())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerPublishVolume plugs the disk in.
func (c *Controller) ControllerPublishVolume(ctx context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[node]
	if _, err := os.Stat(c.File(id)); m == nil || err != nil {
		return nil, status.Errorf(codes.NotFound, "no volume %s or no node %s", id, node)
	}
	if at := c.where[id]; at != "" && at != node {
		return nil, status.Errorf(codes.FailedPrecondition, "the disk is plugged into %s", at)
	}
	if err := m.Plug(ctx, machine.Disk{ID: id, File: c.File(id)}); err != nil {
		return nil, err
	}
	c.where[id] = node
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{disk.SerialKey: id}}, nil
}

// ControllerUnpublishVolume pulls the disk out.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context,
	request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[node]; m != nil && c.where[id] == node {
		if err := m.Unplug(ctx, id); err != nil {
			return nil, err
		}
		delete(c.where, id)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume makes the disk larger.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, size := request.GetVolumeId(), request.GetCapacityRange().GetRequiredBytes()
	c.mu.Lock()
	defer c.mu.Unlock()
	resized := false
	if m := c.machines[c.where[id]]; m != nil {
		var err error
		if resized, err = m.Resize(ctx, id, size); err != nil {
			return nil, err
		}
	}
	if !resized {
		if err := machine.ResizeDisk(ctx, c.File(id), size); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size,
		NodeExpansionRequired: request.GetVolumeCapability().GetBlock() == nil}, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(_ context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: request.GetVolumeCapabilities()}}, nil
}
