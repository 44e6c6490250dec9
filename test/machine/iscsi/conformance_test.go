/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

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
		server:            &Server{Name: name, Number: 1, Node: nodeName, Run: plugintest.Shell},
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

// nothingLeft checks that nothing is published or logged in in the end.
func (d *inside) nothingLeft(t *testing.T) {
	t.Helper()
	if published, err := plugin.Published(d.controller.Dir); err != nil || len(published) > 0 {
		t.Errorf("published in the end: %v, error %v, want nothing", published, err)
	}
	if sessions, err := filepath.Glob("/sys/class/iscsi_session/*"); err != nil || len(sessions) > 0 {
		t.Errorf("sessions in the end: %v, error %v, want none", sessions, err)
	}
}

// notClaimed are specs that csi-sanity skips, because the driver has fewer capabilities than others here.
var notClaimed = []string{
	"ControllerExpandVolume not supported", "ControllerPublishVolume.readonly field not supported",
	"testnodevolumeattachlimit not enabled", "NodeExpandVolume not supported",
}

func TestCSISanityPasses(t *testing.T) {
	d := newInside(t)
	var configs []sanity.TestConfig
	for _, kind := range []string{"mount", "block"} {
		config := sanity.NewTestConfig()
		config.Address = "unix://" + plugin.Socket(d.kubelet, DriverName)
		config.ControllerAddress = "unix://" + d.controllerAddress
		config.TargetPath, config.StagingPath = filepath.Join(d.dir, kind+"-target"), filepath.Join(d.dir, kind+"-staging")
		config.TestVolumeParameters = map[string]string{ParameterServer: d.server.Name}
		config.TestVolumeSize, config.TestVolumeAccessType = 64<<20, kind
		configs = append(configs, config)
	}
	plugintest.Sanity(t, notClaimed, 60, configs...)
	d.nothingLeft(t)
}

func TestConformanceOfTheISCSIDriver(t *testing.T) {
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
		Capacity: resource.MustParse("64Mi"),
	})
	d.nothingLeft(t)
}

// volume creates a volume and attaches it, and undoes that when the test ends.
func (d *inside) volume(t *testing.T, name string, mode corev1.PersistentVolumeMode) driver.Volume {
	t.Helper()
	capability := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{
		Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}}
	created, err := d.controller.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: name,
		Parameters:         map[string]string{ParameterServer: d.server.Name},
		CapacityRange:      &csispec.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csispec.VolumeCapability{capability}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVolume().GetVolumeId()
	attached, err := d.controller.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: nodeName, VolumeCapability: capability})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, detachErr := d.controller.ControllerUnpublishVolume(context.Background(),
			&csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: nodeName})
		_, err := d.controller.DeleteVolume(context.Background(), &csispec.DeleteVolumeRequest{VolumeId: id})
		if err != nil || detachErr != nil {
			t.Errorf("detaching and deleting volume %s: errors %v and %v, want success", id, detachErr, err)
		}
	})
	v := driver.Volume{Handle: id, PersistentVolume: "pv-" + name, Mode: mode, AccessMode: corev1.ReadWriteOnce,
		PublishContext: attached.GetPublishContext()}
	if mode == corev1.PersistentVolumeFilesystem {
		v.FSType = "ext4"
	}
	return v
}
