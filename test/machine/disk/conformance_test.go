/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/machine/plugin"
	"github.com/hawser-io/hawser/test/machine/plugin/plugintest"
)

// kubeletDir is where the node plugin of the machine is, which runs already.
const kubeletDir = "/var/lib/kubelet"

// size of a volume in bytes.
const size = 64 << 20

// inside is the driver, as it is seen from the machine of its node plugin.
type inside struct {
	node, controllerAddress string
	controller              csispec.ControllerClient
}

func newInside(t *testing.T) *inside {
	t.Helper()
	node, address, found := strings.Cut(os.Getenv(InsideVariable), " ")
	if !found {
		t.Skip("not in a virtual machine: make test-machines runs this test")
	}
	d := &inside{node: node, controllerAddress: "dns:///" + address}
	connection, err := grpc.NewClient(d.controllerAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() }) // the calls are over
	d.controller = csispec.NewControllerClient(connection)
	return d
}

// notClaimed are specs that csi-sanity skips, because the driver has fewer capabilities than others here.
var notClaimed = []string{
	"ControllerPublishVolume.readonly field not supported", "testnodevolumeattachlimit not enabled",
	"Service does not have single node multi writer capability",
}

func TestCSISanityPasses(t *testing.T) {
	d, dir := newInside(t), harnesstest.Dir(t)
	var configs []sanity.TestConfig
	for _, kind := range []string{"mount", "block"} {
		config := sanity.NewTestConfig()
		config.Address = "unix://" + plugin.Socket(kubeletDir, DriverName)
		config.ControllerAddress = d.controllerAddress
		config.ControllerDialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		config.TargetPath, config.StagingPath = filepath.Join(dir, kind+"-target"), filepath.Join(dir, kind+"-staging")
		config.TestVolumeSize, config.TestVolumeExpandSize, config.TestVolumeAccessType = size, 2*size, kind
		configs = append(configs, config)
	}
	plugintest.Sanity(t, notClaimed, 60, configs...)
}

func TestConformanceOfTheDiskDriver(t *testing.T) {
	d := newInside(t)
	registry, err := csi.NewRegistry(csi.Options{KubeletDir: kubeletDir})
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
		Capacity:      *resource.NewQuantity(size, resource.BinarySI),
		Grow:          d.grow,
		BindsAnything: true,
	})
}

func capabilityOf(mode corev1.PersistentVolumeMode) *csispec.VolumeCapability {
	capability := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{
		Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}}}
	if mode == corev1.PersistentVolumeBlock {
		capability.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	}
	return capability
}

// volume creates a volume and attaches it, and undoes that when the test ends.
func (d *inside) volume(t *testing.T, name string, mode corev1.PersistentVolumeMode) driver.Volume {
	t.Helper()
	created, err := d.controller.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: d.node + name,
		CapacityRange:      &csispec.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csispec.VolumeCapability{capabilityOf(mode)}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVolume().GetVolumeId()
	attached, err := d.controller.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: d.node, VolumeCapability: capabilityOf(mode)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, detachErr := d.controller.ControllerUnpublishVolume(context.Background(),
			&csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: d.node})
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

func (d *inside) grow(t *testing.T, v driver.Volume, capacity resource.Quantity) {
	t.Helper()
	if _, err := d.controller.ControllerExpandVolume(t.Context(), &csispec.ControllerExpandVolumeRequest{
		VolumeId: v.Handle, CapacityRange: &csispec.CapacityRange{RequiredBytes: capacity.Value()},
		VolumeCapability: capabilityOf(v.Mode)}); err != nil {
		t.Fatal(err)
	}
}
