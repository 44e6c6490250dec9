/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package plugintest has what the tests of the drivers of virtual machines have in common. They run inside a machine.
package plugintest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/csi"
)

// Shell runs a script of a server.
func Shell(ctx context.Context, script string) (string, error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %q: %w: %s", script, err, out)
	}
	return string(out), nil
}

// unclaimed are specs that csi-sanity skips, because no driver here has the capability.
var unclaimed = []string{
	"ControllerGetVolumeHealth not supported", "ControllerListVolumeHealth not supported",
	"ControllerModifyVolume not supported", "CreateSnapshot not supported", "DeleteSnapshot not supported",
	"GetCapacity not supported", "GetSnapshot not supported", "GroupControllerService not supported",
	"ListSnapshots not supported", "ListVolumes not supported", "Modify Volume not supported",
	"Modify volume not supported", "NodeGetStorageHealth not supported", "NodeGetVolumeHealth not supported",
	"Snapshot not supported", "Volume Cloning not supported",
}

// Sanity runs csi-sanity with each of the configurations. Specs may be skipped for the reasons in unclaimed and
// notClaimed, and at least so many have to run.
func Sanity(t *testing.T, notClaimed []string, least int, configs ...sanity.TestConfig) {
	t.Helper()
	for _, config := range configs {
		ginkgo.Describe(config.TestVolumeAccessType, func() { sanity.GinkgoTest(&config) })
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	notClaimed = append(notClaimed, unclaimed...)
	ginkgo.ReportAfterSuite("skipped specs", func(report ginkgo.Report) { checkSkipped(t, report, notClaimed, least) })
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor, reporter.SilenceSkips = true, true, true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

// checkSkipped fails the test if a spec was skipped for another reason than a missing capability.
func checkSkipped(t *testing.T, report ginkgo.Report, notClaimed []string, least int) {
	t.Helper()
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
	if ran < least {
		t.Errorf("csi-sanity ran %d specs, want at least %d", ran, least)
	}
}

// Registered waits until a driver is registered.
func Registered(t *testing.T, registry *csi.Registry, name string) driver.Driver {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		if d, ok := registry.Get(name); ok {
			return d
		}
		select {
		case <-registry.Changed():
		case <-timeout:
			t.Fatal("the driver did not register within a minute, want it registered")
		}
	}
}
