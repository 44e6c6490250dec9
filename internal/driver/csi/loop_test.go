/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/test/csiloop"
	loopdriver "github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

const (
	loopNode    = "node-a"
	callTimeout = 2 * time.Minute
	// To grow a mounted ext4 requires CAP_SYS_RESOURCE, which not every container has; xfs does not require it.
	fsType = "xfs"
)

// loop is the real loop driver: its controller, and its node plugin from the registry.
type loop struct {
	dir        string
	controller csispec.ControllerClient
	registry   *csi.Registry
	made       atomic.Int64
}

func startLoop(t *testing.T) *loop {
	t.Helper()
	dir := harnesstest.Dir(t)
	l := &loop{dir: dir}
	controller := harnesstest.Start(t, dir, harness.Options{Mode: loopdriver.ModeController})
	conn, err := controller.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	l.controller = csispec.NewControllerClient(conn)
	harnesstest.Start(t, dir, harness.Options{Mode: loopdriver.ModeNode, NodeID: loopNode})
	if l.registry, err = csi.NewRegistry(csi.Options{KubeletDir: filepath.Join(dir, loopNode)}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- l.registry.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return l
}

// node waits until the driver is registered.
func (l *loop) node(t *testing.T) driver.Driver {
	t.Helper()
	timeout := time.After(callTimeout)
	for {
		if d, ok := l.registry.Get(csiloop.DriverName); ok {
			return d
		}
		select {
		case <-l.registry.Changed():
		case <-timeout:
			t.Fatalf("driver %s did not register within %s, want it registered", csiloop.DriverName, callTimeout)
		}
	}
}

// volume creates a volume and attaches it to the node, until the test ends.
func (l *loop) volume(t *testing.T, mode corev1.PersistentVolumeMode, size int64) driver.Volume {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	t.Cleanup(cancel)
	capability := &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType}},
	}
	if mode == corev1.PersistentVolumeBlock {
		capability.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	}
	created, err := l.controller.CreateVolume(ctx, &csispec.CreateVolumeRequest{
		Name: fmt.Sprintf("volume-%d", l.made.Add(1)), CapacityRange: &csispec.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csispec.VolumeCapability{capability},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVolume().GetVolumeId()
	attached, err := l.controller.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: loopNode, VolumeCapability: capability,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := l.controller.ControllerUnpublishVolume(ctx,
			&csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: loopNode})
		if err == nil {
			_, err = l.controller.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id})
		}
		if err != nil {
			t.Errorf("removing volume %s: %v", id, err)
		}
	})
	v := driver.Volume{
		Handle: id, PersistentVolume: "pv-" + id, Mode: mode, AccessMode: corev1.ReadWriteOnce,
		Attributes: created.GetVolume().GetVolumeContext(), PublishContext: attached.GetPublishContext(),
	}
	if mode == corev1.PersistentVolumeFilesystem {
		v.FSType = fsType
	}
	return v
}

func (l *loop) grow(t *testing.T, v driver.Volume, capacity resource.Quantity) {
	t.Helper()
	_, err := l.controller.ControllerExpandVolume(t.Context(), &csispec.ControllerExpandVolumeRequest{
		VolumeId: v.Handle, CapacityRange: &csispec.CapacityRange{RequiredBytes: capacity.Value()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformanceOfTheLoopDriver(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs."+fsType)
	l := startLoop(t)
	capacity := resource.MustParse("320Mi")
	drivertest.Run(t, drivertest.Config{
		New: l.node,
		Dir: func(t *testing.T) string { return harnesstest.Dir(t) },
		Volume: func(t *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			return l.volume(t, mode, capacity.Value())
		},
		Capacity: capacity,
		Grow:     l.grow,
	})
}
