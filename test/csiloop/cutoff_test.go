/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

func TestADetachCutsOffANodeThatHasTheVolumeMounted(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			harnesstest.NeedProgram(t, "mkfs."+fsType)
			w := newWorld(t, harness.Options{}, "node-a", "node-b")
			a, b := w.nodes[0], w.nodes[1]
			v := w.create("v", 400*mib, filesystem(fsType))
			v.up(a)
			w.write(filepath.Join(v.target(a, "a"), "kept"), "kept")
			dirty := filepath.Join(v.target(a, "a"), "dirty")
			w.must(os.WriteFile(dirty, []byte("never synced"), 0o600))
			oldLink := inode(w, v.link(a))

			w.must(v.detach(a))

			assertCutOff(w, v, a, oldLink)
			before := sum(w, v.data())
			_ = os.WriteFile(filepath.Join(v.target(a, "a"), "later"), []byte("too late"), 0o600) // may or may not fail
			syncFilesystem(w, v.target(a, "a"))
			if sum(w, v.data()) != before {
				t.Errorf("data of volume %s changed after its detach from %s, want it unchanged", v.id, a.id)
			}

			v.up(b)
			if got := w.read(filepath.Join(v.target(b, "a"), "kept"), 4); got != "kept" {
				t.Errorf("synced file of volume %s on node %s: %q, want %q", v.id, b.id, got, "kept")
			}
			for _, name := range []string{"dirty", "later"} {
				data, err := os.ReadFile(filepath.Join(v.target(b, "a"), name))
				if err == nil && len(data) > 0 {
					t.Errorf("file %s of volume %s on node %s: %q, want that it did not reach the volume", name, v.id, b.id, data)
				}
			}
			w.write(filepath.Join(v.target(b, "a"), "new"), "new")
			// The old node releases the volume while the new one uses it.
			w.must(v.unpublish(a, "a"))
			w.must(v.unstage(a))
			if got := w.read(filepath.Join(v.target(b, "a"), "new"), 3); got != "new" {
				t.Errorf("file of volume %s on node %s after node %s released it: %q, want %q", v.id, b.id, a.id, got, "new")
			}
			v.down(b)
			entries, err := ledger.Read(w.backing)
			w.must(err)
			if found := ledger.UnpublishedWhileStaged(entries); len(found) != 1 || found[0].Node != a.id {
				t.Errorf("detaches while staged in the ledger: %v, want the forced one from %s alone", found, a.id)
			}
		})
	}
}

// assertCutOff checks that the node's device uses an unlinked inode, which is not the volume's.
func assertCutOff(w *world, v *volume, n *pseudoNode, oldInode uint64) {
	w.t.Helper()
	devices, err := loopdev.Find(v.link(n))
	w.must(err)
	if len(devices) != 1 || !devices[0].Unlinked {
		w.t.Fatalf("devices of volume %s on node %s: %+v, want one on an unlinked file", v.id, n.id, devices)
	}
	if inode(w, v.data()) == oldInode {
		w.t.Errorf("volume %s still has inode %d of node %s, want another", v.id, oldInode, n.id)
	}
	health, err := n.NodeGetVolumeHealth(w.ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: v.id})
	w.must(err)
	statuses := health.GetVolumeHealth().GetHealthStatuses()
	if len(statuses) != 1 || statuses[0].GetReason() != "CutOff" {
		w.t.Errorf("health of volume %s on node %s: %v, want CutOff", v.id, n.id, statuses)
	}
}

func TestAReturnedVolumeIsNotStagedOverACutOffMount(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	a := w.nodes[0]
	v := w.create("v", 64*mib, filesystem("ext4"))
	v.up(a)
	w.must(v.detach(a))
	w.must(v.attach(a))
	w.want(codes.FailedPrecondition, v.stage(a))
	w.want(codes.FailedPrecondition, v.publish(a, "b", false))
	w.must(v.unpublish(a, "a"))
	w.must(v.unstage(a))
	w.must(v.stage(a))
	w.must(v.publish(a, "a", false))
	w.write(filepath.Join(v.target(a, "a"), "file"), "works")
	v.down(a)
}

func TestADetachCutsOffABlockVolumeButNotTheOtherNodes(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	a, b := w.nodes[0], w.nodes[1]
	v := w.create("shared", 16*mib, block(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
	v.up(a)
	v.up(b)
	w.write(v.target(a, "a"), "from a")
	open, err := os.OpenFile(v.target(a, "a"), os.O_RDWR, 0)
	w.must(err)
	defer func() { _ = open.Close() }()

	w.must(v.detach(a))

	if _, err := open.WriteAt([]byte("too late"), 0); err == nil {
		err = open.Sync()
		if err == nil {
			t.Errorf("writing volume %s on node %s after its detach: error %v, want one", v.id, a.id, err)
		}
	}
	if got := w.read(v.target(b, "a"), 6); got != "from a" {
		t.Errorf("volume %s on node %s: %q, want %q", v.id, b.id, got, "from a")
	}
	w.write(v.target(b, "a"), "from b")
	if got := w.read(v.data(), 6); got != "from b" {
		t.Errorf("data of volume %s: %q, want %q, written on node %s", v.id, got, "from b", b.id)
	}
	w.must(open.Close())
	w.must(v.unpublish(a, "a"))
	w.must(v.unstage(a))
	v.down(b)
}

func inode(w *world, path string) uint64 {
	w.t.Helper()
	var stat unix.Stat_t
	w.must(unix.Stat(path, &stat))
	return stat.Ino
}

func syncFilesystem(w *world, path string) {
	w.t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		return // after a shutdown, the filesystem does not even open
	}
	defer func() { _ = dir.Close() }()
	_ = unix.Syncfs(int(dir.Fd())) // must fail if the device accepts no writes
}
