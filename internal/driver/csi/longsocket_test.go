/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A driver listens at a short path within its container, which is long on the node.
func TestADriverWhoseSocketHasALongPathIsKnownAndCalled(t *testing.T) {
	n := startNode(t, func(dir string) { mkdirs(t, dir, "plugins_registry") })
	within := mkdirs(t, n.dir, "plugins", strings.Repeat("long", 30))
	short := filepath.Join(shortDir(t), "c")
	if err := os.Symlink(within, short); err != nil {
		t.Fatal(err)
	}
	endpoint := filepath.Join(within, "csi.sock")
	if len(endpoint) <= longestAddress {
		t.Fatalf("the path has %d bytes, want more than %d", len(endpoint), longestAddress)
	}
	s := &scripted{capabilities: allCapabilities(), nodeID: "node-7", info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: driverName, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}}
	s.serve(t, filepath.Join(short, "csi.sock"))
	s.serve(t, n.socket("a-reg.sock"))
	n.await(t, "the driver", n.knows)
	if err := stage(t, n); err != nil {
		t.Errorf("staging: error %v, want none", err)
	}
}
