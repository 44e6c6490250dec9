/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/machine/plugin"
	"github.com/hawser-io/hawser/test/machine/plugin/plugintest"
)

const nodeName = "node"

// inside is the driver, served by this process in the machine of its server.
type inside struct {
	server            *Server
	controller        *Controller
	dir, kubelet      string
	controllerAddress string
}

func newInside(t *testing.T) *inside {
	t.Helper()
	name := os.Getenv(InsideVariable)
	if name == "" {
		t.Skip("not in a virtual machine: make test-machines runs this test")
	}
	dir := harnesstest.Dir(t)
	d := &inside{dir: dir, kubelet: filepath.Join(dir, "kubelet"),
		controllerAddress: filepath.Join(dir, "controller.sock"),
		server:            &Server{Name: name, Number: 1, Run: plugintest.Shell},
		controller:        &Controller{Dir: filepath.Join(dir, "ledgers")}}
	d.controller.Use(d.server)
	if err := os.MkdirAll(plugin.NodeDir(d.controller.Dir, nodeName), 0o755); err != nil {
		t.Fatal(err)
	}
	stop, err := d.controller.Serve(d.controllerAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	// It ends with the process.
	go func() { _ = ServeNode(nodeName, d.kubelet, plugin.NodeDir(d.controller.Dir, nodeName)) }()
	return d
}

// nothingLeft checks that nothing is published in the end.
func (d *inside) nothingLeft(t *testing.T) {
	t.Helper()
	if published, err := plugin.Published(d.controller.Dir); err != nil || len(published) > 0 {
		t.Errorf("published in the end: %v, error %v, want nothing", published, err)
	}
}

// notClaimed are specs that csi-sanity skips, because the driver has fewer capabilities than others here.
var notClaimed = []string{
	"Controller Publish, UnpublishVolume not supported", "ControllerPublishVolume not supported",
	"ControllerUnpublishVolume not supported", "NodeExpandVolume not supported", "NodeStageVolume not supported",
	"NodeUnstageVolume not supported",
}

func TestCSISanityPasses(t *testing.T) {
	d := newInside(t)
	config := sanity.NewTestConfig()
	config.Address = "unix://" + plugin.Socket(d.kubelet, DriverName)
	config.ControllerAddress = "unix://" + d.controllerAddress
	config.TargetPath, config.StagingPath = filepath.Join(d.dir, "target"), filepath.Join(d.dir, "staging")
	config.TestVolumeParameters = map[string]string{ParameterServer: d.server.Name}
	config.TestVolumeSize, config.TestVolumeExpandSize = 64<<20, 128<<20
	plugintest.Sanity(t, notClaimed, 30, config)
	d.nothingLeft(t)
}

func TestConformanceOfTheNFSDriver(t *testing.T) {
	d := newInside(t)
	registry, err := csi.NewRegistry(csi.Options{KubeletDir: d.kubelet})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = registry.Start(t.Context()) }() // ends with the test
	var made atomic.Int64
	drivertest.Run(t, drivertest.Config{
		New: func(t *testing.T) driver.Driver { return plugintest.Registered(t, registry, DriverName) },
		Dir: func(t *testing.T) string { return harnesstest.Dir(t) },
		Volume: func(t *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			return d.volume(t, fmt.Sprintf("volume-%d", made.Add(1)), mode)
		},
		Capacity:       resource.MustParse("1Ti"), // at most the size of the export
		Modes:          []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem},
		WithoutStaging: true,
	})
	d.nothingLeft(t)
	entries, err := ledger.Read(plugin.NodeDir(d.controller.Dir, nodeName))
	if err != nil || len(entries) == 0 {
		t.Errorf("the node's ledger has %d entries, error %v, want the calls", len(entries), err)
	}
}

// volume creates a volume and deletes it when the test ends.
func (d *inside) volume(t *testing.T, name string, mode corev1.PersistentVolumeMode) driver.Volume {
	t.Helper()
	created, err := d.controller.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: name,
		Parameters: map[string]string{ParameterServer: d.server.Name},
		VolumeCapabilities: []*csispec.VolumeCapability{{
			AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	v := created.GetVolume()
	t.Cleanup(func() {
		request := &csispec.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}
		if _, err := d.controller.DeleteVolume(context.Background(), request); err != nil {
			t.Errorf("deleting volume %s: error %v, want success", v.GetVolumeId(), err)
		}
	})
	return driver.Volume{Handle: v.GetVolumeId(), PersistentVolume: "pv-" + name, Mode: mode,
		AccessMode: corev1.ReadWriteOnce, Attributes: v.GetVolumeContext()}
}
