/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// TestCSISanityPassesAsFarAsItApplies runs what csi-sanity has for the identity and the node service. It leaves out
// what creates a volume by a controller service, which the plugin does not have, and publishes it outside of the
// kubelet's directories.
func TestCSISanityPassesAsFarAsItApplies(t *testing.T) {
	n := newNode(t, intents{})
	n.serve(t)
	config := sanity.NewTestConfig()
	config.Address = "unix://" + n.socket()
	config.TargetPath, config.StagingPath = filepath.Join(n.Paths.Root, "target"), filepath.Join(n.Paths.Root, "staging")
	ginkgo.Describe("inline", func() { sanity.GinkgoTest(&config) })
	gomega.RegisterFailHandler(ginkgo.Fail)
	passed := 0
	ginkgo.ReportAfterSuite("count", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.State == types.SpecStatePassed && spec.LeafNodeType == types.NodeTypeIt {
				passed++
			}
		}
	})
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{"Identity Service", "Node Service"}
	suite.SkipStrings = []string{"should remove target path"}
	reporter.Succinct, reporter.NoColor, reporter.SilenceSkips = true, true, true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
	if passed < 10 {
		t.Errorf("csi-sanity ran %d specs, want at least 10", passed)
	}
}
