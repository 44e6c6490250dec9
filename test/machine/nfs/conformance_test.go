/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/machine/plugin"
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
		controllerAddress: filepath.Join(dir, "controller.sock"), server: &Server{Name: name, Number: 1, Run: shell},
		controller: &Controller{Dir: filepath.Join(dir, "ledgers")}}
	d.controller.Use(d.server)
	if err := os.MkdirAll(NodeDir(d.controller.Dir, nodeName), 0o755); err != nil {
		t.Fatal(err)
	}
	stop, err := d.controller.Serve(d.controllerAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	go func() { _ = ServeNode(nodeName, d.kubelet, NodeDir(d.controller.Dir, nodeName)) }() // ends with the process
	return d
}

// nothingLeft checks that nothing is published in the end.
func (d *inside) nothingLeft(t *testing.T) {
	t.Helper()
	if published, err := Published(d.controller.Dir); err != nil || len(published) > 0 {
		t.Errorf("published in the end: %v, error %v, want nothing", published, err)
	}
}

func shell(ctx context.Context, script string) (string, error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %q: %w: %s", script, err, out)
	}
	return string(out), nil
}

// notClaimed are specs that csi-sanity skips, because the driver does not have the capability.
var notClaimed = []string{
	"Controller Publish, UnpublishVolume not supported", "ControllerGetVolumeHealth not supported",
	"ControllerListVolumeHealth not supported", "ControllerModifyVolume not supported",
	"ControllerPublishVolume not supported", "ControllerUnpublishVolume not supported",
	"CreateSnapshot not supported", "DeleteSnapshot not supported", "GetCapacity not supported",
	"GetSnapshot not supported", "GroupControllerService not supported", "ListSnapshots not supported",
	"ListVolumes not supported", "Modify Volume not supported", "Modify volume not supported",
	"NodeExpandVolume not supported", "NodeGetStorageHealth not supported", "NodeGetVolumeHealth not supported",
	"NodeStageVolume not supported", "NodeUnstageVolume not supported", "Snapshot not supported",
	"Volume Cloning not supported",
}

func TestCSISanityPasses(t *testing.T) {
	d := newInside(t)
	config := sanity.NewTestConfig()
	config.Address = "unix://" + plugin.Socket(d.kubelet, DriverName)
	config.ControllerAddress = "unix://" + d.controllerAddress
	config.TargetPath, config.StagingPath = filepath.Join(d.dir, "target"), filepath.Join(d.dir, "staging")
	config.TestVolumeParameters = map[string]string{ParameterServer: d.server.Name}
	config.TestVolumeSize, config.TestVolumeExpandSize = 64<<20, 128<<20
	ginkgo.Describe("NFS", func() { sanity.GinkgoTest(&config) })
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("skipped specs", func(report ginkgo.Report) { checkSkipped(t, report) })
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor, reporter.SilenceSkips = true, true, true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
	d.nothingLeft(t)
}

// checkSkipped fails the test if a spec was skipped for another reason than a missing capability.
func checkSkipped(t *testing.T, report ginkgo.Report) {
	ran := 0
	for _, spec := range report.SpecReports {
		if spec.State == types.SpecStatePassed && spec.LeafNodeType == types.NodeTypeIt {
			ran++
		}
		if spec.State == types.SpecStateSkipped && !slices.Contains(notClaimed, spec.Failure.Message) {
			t.Errorf("csi-sanity skipped %q: %s; want no more skipped than what is not claimed", spec.FullText(),
				spec.Failure.Message)
		}
	}
	t.Logf("csi-sanity: %d specs passed", ran)
	if ran < 30 {
		t.Errorf("csi-sanity ran %d specs, want at least 30", ran)
	}
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
		New: func(t *testing.T) driver.Driver { return registered(t, registry) },
		Dir: func(t *testing.T) string { return harnesstest.Dir(t) },
		Volume: func(t *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			return d.volume(t, fmt.Sprintf("volume-%d", made.Add(1)), mode)
		},
		Capacity:       resource.MustParse("1Ti"), // at most the size of the export
		Modes:          []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem},
		WithoutStaging: true,
	})
	d.nothingLeft(t)
	entries, err := ledger.Read(NodeDir(d.controller.Dir, nodeName))
	if err != nil || len(entries) == 0 {
		t.Errorf("the node's ledger has %d entries, error %v, want the calls", len(entries), err)
	}
}

// registered waits until the driver is registered.
func registered(t *testing.T, registry *csi.Registry) driver.Driver {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		if d, ok := registry.Get(DriverName); ok {
			return d
		}
		select {
		case <-registry.Changed():
		case <-timeout:
			t.Fatal("the driver did not register within a minute, want it registered")
		}
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
