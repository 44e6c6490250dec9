/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// notClaimed are specs that csi-sanity skips, because the driver does not have the capability.
var notClaimed = []string{
	"Snapshot not supported", "ListSnapshots not supported", "GetSnapshot not supported", "DeleteSnapshot not supported",
	"CreateSnapshot not supported", "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported", "Volume Cloning not supported",
	"Modify volume not supported", "Modify Volume not supported", "ControllerModifyVolume not supported",
	"ControllerListVolumeHealth not supported", "NodeGetStorageHealth not supported",
	"GroupControllerService not supported", "VolumeGroupSnapshots not supported",
}

func TestCSISanityPasses(t *testing.T) {
	harnesstest.NeedRoot(t)
	dir := harnesstest.Dir(t)
	controller := harnesstest.Start(t, dir, harness.Options{Mode: driver.ModeController})
	node := harnesstest.Start(t, dir, harness.Options{Mode: driver.ModeNode, NodeID: "node-a", MaxVolumes: 8})
	for _, kind := range []string{"mount", "block"} {
		config := sanity.NewTestConfig()
		config.Address, config.ControllerAddress = "unix://"+node.Endpoint, "unix://"+controller.Endpoint
		config.TargetPath, config.StagingPath = filepath.Join(dir, kind+"-target"), filepath.Join(dir, kind+"-staging")
		config.TestVolumeSize, config.TestVolumeExpandSize = 64*mib, 128*mib
		config.TestVolumeAccessType = kind
		config.TestNodeVolumeAttachLimit = true
		ginkgo.Describe(kind, func() { sanity.GinkgoTest(&config) })
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("skipped specs", func(report ginkgo.Report) { checkSkipped(t, report) })
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor, reporter.SilenceSkips = true, true, true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
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
	if ran < 100 {
		t.Errorf("csi-sanity ran %d specs, want at least 100", ran)
	}
}
