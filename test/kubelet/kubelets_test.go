/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"os"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/system"
)

// oftenReport is the line of a kubelet's configuration that has it report its node every second. Pods with claims that
// it mounts itself wait for such a report. By default it comes every ten seconds.
const oftenReport = "nodeStatusUpdateFrequency: 1s\n"

// reportsOften has the kubelets report often, for the tests of claims, which would take minutes more.
func reportsOften(t *testing.T) {
	t.Helper()
	configure(t, func(config string) string {
		return strings.ReplaceAll(config, oftenReport, "") + oftenReport
	}, sys.Nodes...)
}

// reportsByDefault has the kubelets report as seldom as by default. Leases are still renewed often: they tell only that
// a node is alive, and the node controller of this cluster waits less than by default.
func reportsByDefault(t *testing.T) {
	t.Helper()
	configure(t, func(config string) string { return strings.ReplaceAll(config, oftenReport, "") }, sys.Nodes...)
}

// configure changes the configuration of kubelets, and starts those again whose configuration changes.
func configure(t *testing.T, change func(config string) string, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		path := sys.KubeletConfig(node)
		config, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := change(string(config))
		if changed == string(config) {
			continue
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		startAgain(t, system.Kubelet(node))
		awaitReady(t, node)
	}
}
