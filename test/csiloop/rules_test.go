/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func sum(w *world, path string) string {
	w.t.Helper()
	file, err := os.Open(path)
	w.must(err)
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	w.must(err)
	return hex.EncodeToString(hash.Sum(nil))
}

func TestASecondNodeOfASingleNodeVolumeIsRefusedWithTheHoldersName(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	v := w.create("v", mib, filesystem("ext4"))
	w.must(v.attach(w.nodes[0]))
	if message := w.want(codes.FailedPrecondition, v.attach(w.nodes[1])); !strings.Contains(message, `"node-a"`) {
		t.Errorf("refusal of volume %s on the second node: %q, want node-a named", v.id, message)
	}
	if _, err := os.Stat(v.link(w.nodes[1])); !os.IsNotExist(err) {
		t.Errorf("link of volume %s on refused node %s: error %v, want not found", v.id, w.nodes[1].id, err)
	}
	_, err := w.controller.DeleteVolume(w.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	w.want(codes.FailedPrecondition, err)
	w.must(v.detach(w.nodes[0]))
	w.must(v.attach(w.nodes[1]))
}

func TestReadersOnSeveralNodesShareAVolumeAndCannotWrite(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	v := w.create("v", 64*mib, filesystem("ext4"))
	v.up(w.nodes[0])
	w.write(filepath.Join(v.target(w.nodes[0], "a"), "file"), "shared")
	v.down(w.nodes[0])
	v.capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	for _, node := range w.nodes {
		v.up(node)
		target := v.target(node, "a")
		if got := w.read(filepath.Join(target, "file"), 6); got != "shared" {
			t.Errorf("file of volume %s on node %s: %q, want %q", v.id, node.id, got, "shared")
		}
		if err := os.WriteFile(filepath.Join(target, "other"), nil, 0o600); err == nil {
			t.Errorf("writing to read-only volume %s on node %s: no error, want one", v.id, node.id)
		}
	}
	for _, node := range w.nodes {
		v.down(node)
	}
}

func TestANodeRefusesMoreVolumesThanItsLimit(t *testing.T) {
	w := newWorld(t, harness.Options{MaxVolumes: 2}, "node-a")
	node := w.nodes[0]
	info, err := node.NodeGetInfo(w.ctx, &csi.NodeGetInfoRequest{})
	w.must(err)
	if info.GetMaxVolumesPerNode() != 2 || info.GetNodeId() != "node-a" {
		t.Errorf("info of node %s: %v, want its ID and at most 2 volumes", node.id, info)
	}
	var volumes []*volume
	for i := range 3 {
		volumes = append(volumes, w.create(fmt.Sprint("v", i), mib, filesystem("ext4")))
	}
	w.must(volumes[0].attach(node))
	w.must(volumes[1].attach(node))
	w.want(codes.ResourceExhausted, volumes[2].attach(node))
	w.must(volumes[1].attach(node))
	w.must(volumes[0].detach(node))
	w.must(volumes[2].attach(node))
}

func TestAVolumeThatIsNotPublishedToANodeCannotBeStagedThere(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.want(codes.FailedPrecondition, v.stage(w.nodes[0]))
	w.must(v.attach(w.nodes[0]))
	w.want(codes.FailedPrecondition, v.publish(w.nodes[0], "a", false))
}

func TestCapacityIsCountedAndLimited(t *testing.T) {
	w := newWorld(t, harness.Options{Capacity: 100 * mib})
	w.create("a", 60*mib, filesystem("ext4"))
	_, err := w.controller.CreateVolume(w.ctx, &csi.CreateVolumeRequest{
		Name: "b", CapacityRange: &csi.CapacityRange{RequiredBytes: 60 * mib},
		VolumeCapabilities: []*csi.VolumeCapability{filesystem("")},
	})
	w.want(codes.ResourceExhausted, err)
	capacity, err := w.controller.GetCapacity(w.ctx, &csi.GetCapacityRequest{})
	w.must(err)
	if capacity.GetAvailableCapacity() != 40*mib {
		t.Errorf("available capacity: %d bytes, want %d", capacity.GetAvailableCapacity(), 40*mib)
	}
}

func TestListedPagesContainEveryVolumeOnceWithItsNodes(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	for i := range 5 {
		v := w.create(fmt.Sprint("v", i), mib, filesystem("ext4"))
		if i%2 == 0 {
			w.must(v.attach(w.nodes[0]))
		}
	}
	var seen []string
	for token := ""; ; {
		page, err := w.controller.ListVolumes(w.ctx, &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		w.must(err)
		for _, entry := range page.GetEntries() {
			seen = append(seen, entry.GetVolume().GetVolumeId()+fmt.Sprint(entry.GetStatus().GetPublishedNodeIds()))
		}
		if token = page.GetNextToken(); token == "" {
			break
		}
	}
	if got := strings.Join(seen, " "); got != "v0[node-a] v1[] v2[node-a] v3[] v4[node-a]" {
		t.Errorf("listed volumes: %s, want v0 to v4, and v0, v2 and v4 on node-a", got)
	}
}

func TestADeviceWithContentsIsNotFormatted(t *testing.T) {
	signature := func(offset int64, bytes ...byte) func(*world, string) {
		return func(w *world, path string) {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			w.must(err)
			_, err = file.WriteAt(bytes, offset)
			w.must(err)
			w.must(file.Close())
		}
	}
	tests := map[string]struct {
		put   func(*world, string)
		names []string
	}{
		"another filesystem": {func(w *world, path string) {
			out, err := exec.CommandContext(w.ctx, "mkfs.ext4", "-q", "-F", path).CombinedOutput()
			if err != nil {
				w.t.Fatalf("running mkfs.ext4 on %s: error %v, want success: %s", path, err, out)
			}
		}, []string{`"ext4"`, `"xfs"`}},
		"a partition table": {
			signature(446, append(append([]byte{0, 0, 2, 0, 0x83, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 48)...), 0x55,
				0xaa)...), []string{"partitions", `"xfs"`}},
		"a known signature":   {signature(0, []byte("LUKS\xba\xbe\x00\x01")...), []string{"not formatted"}},
		"unknown data":        {signature(5*mib, 'x'), []string{"no known filesystem"}},
		"data at the end":     {signature(64*mib-1, 1), []string{"no known filesystem"}},
		"swap made by mkswap": {signature(4086, []byte("SWAPSPACE2")...), []string{"not formatted"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			harnesstest.NeedProgram(t, "mkfs.xfs")
			w := newWorld(t, harness.Options{}, "node-a")
			v := w.create("v", 64*mib, filesystem("xfs"))
			test.put(w, v.data())
			before := sum(w, v.data())
			w.must(v.attach(w.nodes[0]))
			message := w.want(codes.FailedPrecondition, v.stage(w.nodes[0]))
			for _, name := range test.names {
				if !strings.Contains(message, name) {
					t.Errorf("refusal to stage volume %s: %q, want %s in it", v.id, message, name)
				}
			}
			if sum(w, v.data()) != before {
				t.Errorf("data of volume %s changed by a refused stage, want it unchanged", v.id)
			}
			if devices, mounts, err := harness.Leftovers(w.dir); err != nil || len(devices)+len(mounts) > 0 {
				t.Errorf("left by a refused stage of volume %s: devices %v, mounts %v, error %v; want none", v.id, devices, mounts,
					err)
			}
		})
	}
}

func TestADeviceFullOfZeroesIsEmpty(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(os.WriteFile(v.data(), bytes.Repeat([]byte{0}, int(64*mib)), 0o600))
	v.up(w.nodes[0])
	v.down(w.nodes[0])
}

func TestTheErrorNamesAMissingMkfs(t *testing.T) {
	w := newWorld(t, harness.Options{})
	bin := filepath.Join(w.dir, "bin")
	w.must(os.Mkdir(bin, 0o755))
	for _, name := range []string{"blkid", "mount"} {
		path, err := exec.LookPath(name)
		w.must(err)
		w.must(os.Symlink(path, filepath.Join(bin, name)))
	}
	node := &pseudoNode{w: w, id: "node-a",
		options: harness.Options{Mode: driver.ModeNode, NodeID: "node-a", Env: []string{"PATH=" + bin}}}
	node.start()
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(v.attach(node))
	if message := w.want(codes.FailedPrecondition, v.stage(node)); !strings.Contains(message,
		"mkfs.ext4 is not installed") {
		t.Errorf("error of the stage of volume %s: %q, want mkfs.ext4 named", v.id, message)
	}
}

func TestMountOptionsApplyToStageAndPublish(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", 64*mib, filesystem("ext4", "noatime", "noexec"))
	v.up(node)
	w.must(v.publish(node, "ro", true))
	flags := func(path string) int64 {
		var stat unix.Statfs_t
		w.must(unix.Statfs(path, &stat))
		return stat.Flags
	}
	if got := flags(v.staging(node)); got&unix.ST_NOATIME == 0 || got&unix.ST_NOEXEC == 0 {
		t.Errorf("mount flags of staged volume %s: %#x, want noatime and noexec", v.id, got)
	}
	if got := flags(v.target(node, "a")); got&unix.ST_NOATIME == 0 || got&unix.ST_RDONLY != 0 {
		t.Errorf("mount flags of published volume %s: %#x, want noatime and writable", v.id, got)
	}
	if got := flags(v.target(node, "ro")); got&unix.ST_RDONLY == 0 {
		t.Errorf("mount flags of volume %s, published read-only: %#x, want read-only", v.id, got)
	}
	w.want(codes.AlreadyExists, v.publish(node, "a", true))
	w.must(v.unpublish(node, "ro"))
	v.down(node)
	v.capability.GetMount().MountFlags = []string{"no-such-option"}
	w.must(v.attach(node))
	w.want(codes.Internal, v.stage(node))
}

func TestAReadOnlyBlockPublicationCannotBeWritten(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", mib, block(writer))
	v.up(node)
	w.must(v.publish(node, "ro", true))
	file, err := os.OpenFile(v.target(node, "ro"), os.O_WRONLY, 0) // Linux refuses the write, not the open
	w.must(err)
	if _, err := file.Write([]byte("x")); err == nil {
		t.Errorf("writing to volume %s, published read-only: no error, want one", v.id)
	}
	w.must(file.Close())
	w.write(v.target(node, "a"), "x")
	w.must(v.unpublish(node, "ro"))
	v.down(node)
}

func TestAMountGroupMayWriteEverything(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", 64*mib, filesystem("ext4"))
	v.up(node)
	w.write(filepath.Join(v.target(node, "a"), "old"), "x")
	w.must(v.unpublish(node, "a"))
	w.must(v.unstage(node))
	v.capability.GetMount().VolumeMountGroup = "4242"
	w.must(v.stage(node))
	w.must(v.publish(node, "a", false))
	for _, name := range []string{"", "old"} {
		var stat unix.Stat_t
		w.must(unix.Stat(filepath.Join(v.target(node, "a"), name), &stat))
		if stat.Gid != 4242 || stat.Mode&0o060 != 0o060 {
			t.Errorf("file %q of volume %s: group %d, mode %o; want group 4242, which may read and write", name, v.id, stat.Gid,
				stat.Mode)
		}
	}
	v.down(node)
}

func TestAVolumeGrowsWhileItIsMounted(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			harnesstest.NeedProgram(t, "mkfs."+fsType)
			if fsType == "ext4" {
				needSysResource(t)
			}
			w := newWorld(t, harness.Options{}, "node-a")
			node := w.nodes[0]
			v := w.create("v", 400*mib, filesystem(fsType))
			v.up(node)
			want := &csi.CapacityRange{RequiredBytes: 800 * mib}
			expand := func() error {
				_, err := node.NodeExpandVolume(w.ctx, &csi.NodeExpandVolumeRequest{
					VolumeId: v.id, VolumePath: v.target(node, "a"), CapacityRange: want, VolumeCapability: v.capability,
				})
				return err
			}
			w.want(codes.FailedPrecondition, expand())
			_, err := w.controller.ControllerExpandVolume(w.ctx,
				&csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: want})
			w.must(err)
			w.must(expand())
			stats, err := node.NodeGetVolumeStats(w.ctx,
				&csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target(node, "a")})
			w.must(err)
			if total := stats.GetUsage()[0].GetTotal(); total < 600*mib {
				t.Errorf("filesystem of volume %s after the expansion: %d bytes, want at least %d", v.id, total, 600*mib)
			}
			v.down(node)
		})
	}
}

// needSysResource skips the test without the capability CAP_SYS_RESOURCE, and names it in the output. The kernel needs
// the capability to grow a mounted ext4. Root lacks it in some containers and sandboxes.
func needSysResource(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		t.Skipf("LEFT OUT (needs CAP_SYS_RESOURCE): %s grows a mounted ext4", t.Name())
	}
}

func TestABlockVolumeGrowsWhileItIsPublished(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", 16*mib, block(writer))
	v.up(node)
	want := &csi.CapacityRange{RequiredBytes: 32 * mib}
	_, err := w.controller.ControllerExpandVolume(w.ctx,
		&csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: want})
	w.must(err)
	_, err = node.NodeExpandVolume(w.ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target(node, "a"), CapacityRange: want, VolumeCapability: v.capability,
	})
	w.must(err)
	stats,
		err := node.NodeGetVolumeStats(w.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target(node, "a")})
	w.must(err)
	if total := stats.GetUsage()[0].GetTotal(); total != 32*mib {
		t.Errorf("device of volume %s after the expansion: %d bytes, want %d", v.id, total, 32*mib)
	}
	v.down(node)
}

func TestAnUnstageFailsWhileAPublicationExists(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	for name, capability := range map[string]*csi.VolumeCapability{"files": filesystem("ext4"), "raw": block(writer)} {
		v := w.create(name, 64*mib, capability)
		v.up(w.nodes[0])
		if message := w.want(codes.FailedPrecondition, v.unstage(w.nodes[0])); !strings.Contains(message,
			v.target(w.nodes[0], "a")) {
			t.Errorf("refusal to unstage volume %s: %q, want the publication named: %s", v.id, message, v.target(w.nodes[0],
				"a"))
		}
		v.down(w.nodes[0])
	}
}

func TestOtherFilesAtATargetAreNotChanged(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(v.attach(node))
	w.must(v.stage(node))
	w.must(os.WriteFile(v.target(node, "file"), []byte("mine"), 0o600))
	w.want(codes.FailedPrecondition, v.publish(node, "file", false))
	w.want(codes.FailedPrecondition, v.unpublish(node, "file"))
	w.must(os.MkdirAll(filepath.Join(v.target(node, "dir"), "full"), 0o700))
	w.want(codes.FailedPrecondition, v.unpublish(node, "dir"))
	if got := w.read(v.target(node, "file"), 4); got != "mine" {
		t.Errorf("other file at a target of volume %s: %q, want %q", v.id, got, "mine")
	}
	w.must(v.unstage(node))
}
