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
	// Azure makes it the controller of Azure's driver, in place of that of the disk driver.
	Azure bool

	mu sync.Mutex
	// machines by the name of their node.
	machines map[string]*machine.Machine
	// plugged are the disks that are plugged in, by volume.
	plugged map[string]place
}

// place of a disk.
type place struct {
	node string
	disk machine.Disk
}

// Serve serves the controller at a socket until the returned function is called.
func (c *Controller) Serve(socket string) (stop func(), err error) {
	server := grpc.NewServer()
	csi.RegisterControllerServer(server, c)
	driver := disk.DriverName
	if c.Azure {
		driver = AzureDriver
	}
	return plugin.ServeController(server, driver, socket)
}

// Use has disks of the node plugged into that machine.
func (c *Controller) Use(node string, m *machine.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machines == nil {
		c.machines, c.plugged = map[string]*machine.Machine{}, map[string]place{}
	}
	c.machines[node] = m
}

// file of a disk's content.
func (c *Controller) file(volume string) string { return filepath.Join(c.Dir, diskID(volume)+".qcow2") }

// Disk of a volume that is plugged in.
func (c *Controller) Disk(volume string) machine.Disk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plugged[volume].disk
}

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
	if err := plugin.Require("name", request.GetName()); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapabilities(request.GetVolumeCapabilities(), plugin.CheckCapability); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("disk%x", sha256.Sum256([]byte(request.GetName())))[:20]
	size := max(request.GetCapacityRange().GetRequiredBytes(), 1<<20)
	if c.Azure {
		id, size = azurePath+id, azureSize(size)
	}
	most := request.GetCapacityRange().GetLimitBytes()
	if most > 0 && size > most {
		return nil, status.Errorf(codes.OutOfRange, "a disk has at least %d bytes", size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, err := machine.DiskSize(c.file(id))
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = machine.CreateDisk(ctx, c.file(id), size)
	case err == nil && (was < size || most > 0 && was > most):
		err = status.Errorf(codes.AlreadyExists, "volume %q has %d bytes", request.GetName(), was)
	case err == nil:
		size = was
	}
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: size,
		VolumeContext: request.GetParameters()}}, nil
}

// DeleteVolume deletes a disk that is nowhere plugged in.
func (c *Controller) DeleteVolume(_ context.Context,
	request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := plugin.Require("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.plugged[request.GetVolumeId()].node; node != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "the disk is plugged into %s", node)
	}
	if err := os.Remove(c.file(request.GetVolumeId())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerPublishVolume plugs the disk in.
func (c *Controller) ControllerPublishVolume(ctx context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	if err := plugin.Require("volume id", id, "node id", node); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[node]
	if _, err := os.Stat(c.file(id)); m == nil || err != nil {
		return nil, status.Errorf(codes.NotFound, "no volume %s or no node %s", id, node)
	}
	at, in := c.plugged[id]
	if in && at.node != node {
		return nil, status.Errorf(codes.FailedPrecondition, "the disk is plugged into %s", at.node)
	}
	if !in {
		at = place{node, machine.Disk{ID: diskID(id), File: c.file(id), Azure: c.Azure}}
		if c.Azure {
			at.disk.LUN = c.freeLUN(node)
		}
	}
	if err := m.Plug(ctx, at.disk); err != nil {
		return nil, err
	}
	c.plugged[id] = at
	return &csi.ControllerPublishVolumeResponse{PublishContext: at.context()}, nil
}

// ControllerUnpublishVolume pulls the disk out.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context,
	request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	if err := plugin.Require("volume id", id); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[node]; m != nil && c.plugged[id].node == node {
		if err := m.Unplug(ctx, diskID(id)); err != nil {
			return nil, err
		}
		delete(c.plugged, id)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume makes the disk larger.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, size := request.GetVolumeId(), request.GetCapacityRange().GetRequiredBytes()
	if err := plugin.Require("volume id", id); err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, status.Error(codes.InvalidArgument, "required bytes are required")
	}
	if c.Azure {
		size = azureSize(size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, err := machine.DiskSize(c.file(id))
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "no volume %s: %v", id, err)
	}
	size = max(size, was)
	resized := was == size
	if m := c.machines[c.plugged[id].node]; m != nil && !resized {
		if resized, err = m.Resize(ctx, diskID(id), size); err != nil {
			return nil, err
		}
	}
	if !resized {
		if err := machine.ResizeDisk(ctx, c.file(id), size); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size,
		NodeExpansionRequired: request.GetVolumeCapability().GetBlock() == nil}, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(_ context.Context,
	request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return plugin.Validate(request, func(volume string) error {
		if _, err := os.Stat(c.file(volume)); err != nil {
			return status.Errorf(codes.NotFound, "no volume %s", volume)
		}
		return nil
	}, plugin.CheckCapability)
}
