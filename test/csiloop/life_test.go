/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func TestAVolumeKeepsItsDataThroughTwoLives(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			harnesstest.NeedProgram(t, "mkfs."+fsType)
			w := newWorld(t, harness.Options{}, "node-a", "node-b")
			v := w.create("data", 400*mib, filesystem(fsType))
			for i, node := range w.nodes {
				v.up(node)
				file := filepath.Join(v.target(node, "a"), "file")
				if i == 0 {
					w.write(file, "hello")
				}
				if got := w.read(file, 5); got != "hello" {
					t.Errorf("device of volume %s on node %s: %q, want hello", v.id, node.id, got)
				}
				v.down(node)
			}
			v.delete()
		})
	}
}

func TestABlockVolumeKeepsItsDataThroughItsLife(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	v := w.create("raw", 16*mib, block(writer))
	for i, node := range w.nodes {
		v.up(node)
		if i == 0 {
			w.write(v.target(node, "a"), "raw data")
		}
		if got := w.read(v.target(node, "a"), 8); got != "raw data" {
			t.Errorf("device of volume %s on node %s: %q, want the written data", v.id, node.id, got)
		}
		v.down(node)
	}
	v.delete()
}

func TestEveryCallCanBeRepeated(t *testing.T) {
	for name, capability := range map[string]*csi.VolumeCapability{
		"filesystem": filesystem("ext4"), "block": block(writer),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, harness.Options{}, "node-a")
			node, v := w.nodes[0], (*volume)(nil)
			twice := func(call func() error) {
				t.Helper()
				w.must(call())
				w.must(call())
			}
			twice(func() error { v = w.create("v", 64*mib, capability); return nil })
			twice(func() error { return v.attach(node) })
			twice(func() error { return v.stage(node) })
			twice(func() error { return v.publish(node, "a", false) })
			twice(func() error { return v.unpublish(node, "a") })
			twice(func() error { return v.unstage(node) })
			twice(func() error { return v.detach(node) })
			twice(func() error { v.delete(); return nil })
		})
	}
}
