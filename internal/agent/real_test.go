/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	csidriver "github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/csiloop"
	csiloopdriver "github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// realNode is a node with this machine's kernel and the loop driver.
type realNode struct {
	*node
	dir        string
	process    *harness.Process
	controller csi.ControllerClient
	mounter    *mount.Mounter
	mkdir      directory
	// layout is the number of mounts below dir that belong to the directories themselves.
	layout int
}

// directory makes a directory of a node at path.
type directory func(path string) error

func plainDirectory(path string) error { return os.MkdirAll(path, 0o755) }

// linkedDirectory leaves a symbolic link at path, as hosts do that keep volumes on another disk.
func linkedDirectory(path string) error {
	target := filepath.Join(filepath.Dir(path), "disk", filepath.Base(path))
	return errors.Join(os.MkdirAll(target, 0o755), os.Symlink(target, path))
}

func (c *cluster) realNode(t *testing.T) *realNode {
	t.Helper()
	return c.realNodeWith(t, plainDirectory)
}

func (c *cluster) realNodeWith(t *testing.T, mkdir directory) *realNode {
	t.Helper()
	dir := harnesstest.Dir(t)
	conn, err := harnesstest.Start(t, dir, harness.Options{Mode: csiloopdriver.ModeController}).Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: error %v, want none", err)
		}
	})
	return c.realNodeIn(t, dir, csi.NewControllerClient(conn), mkdir)
}

// realNodeIn is another node over the same volumes.
func (c *cluster) realNodeIn(t *testing.T, dir string, controller csi.ControllerClient, mkdir directory) *realNode {
	t.Helper()
	n := &realNode{node: c.node(t), dir: dir, controller: controller, mkdir: mkdir}
	n.timeout = 20 * time.Second
	n.root, n.kubelet = filepath.Join(dir, "root-"+n.name), filepath.Join(dir, n.name)
	n.must(errors.Join(mkdir(n.root), mkdir(n.kubelet),
		os.MkdirAll(filepath.Join(n.kubelet, "plugins_registry"), 0o755)))
	table, err := mount.ReadTable(mount.SelfMountInfo)
	n.must(err)
	n.layout = len(table.Below(dir))
	n.startDriver()
	links, err := mount.ResolveLinks(mount.SelfMountInfo, n.kubelet, n.root)
	n.must(err)
	n.mounter = mount.New(mount.Options{Links: links})
	registry, err := csidriver.NewRegistry(csidriver.Options{KubeletDir: n.kubelet})
	n.must(err)
	watcher := n.mounter.NewWatcher()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- registry.Start(ctx) }()
	go func() { ended <- watcher.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("ending the driver: error %v, want none", err)
		}
	})
	n.drive = func(o *Options) {
		o.Mounts, o.MountChanges, o.Registry = n.mounter, watcher.Changes(), registry
		o.Filesystems = NodeFilesystems{File: "/proc/filesystems", MissingPrograms: n.mounter.MissingPrograms}
	}
	return n
}

func (n *realNode) backing() string { return filepath.Join(n.dir, "backing") }

func (n *realNode) startDriver() {
	n.process = harnesstest.Start(n.t, n.dir, harness.Options{Mode: csiloopdriver.ModeNode, NodeID: n.name,
		KubeletDir: n.kubelet})
}

func capabilityOf(mode corev1.PersistentVolumeMode, fsType string) *csi.VolumeCapability {
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
	if mode == corev1.PersistentVolumeBlock {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return capability
}

// volume makes a volume and attaches it, as provisioner and attacher would.
func (n *realNode) volume(mode corev1.PersistentVolumeMode, fsType string, mib int64) testVolume {
	n.t.Helper()
	capability := capabilityOf(mode, fsType)
	made, err := n.controller.CreateVolume(n.t.Context(), &csi.CreateVolumeRequest{
		Name: fmt.Sprintf("%s-%s", n.name, mode), CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
		VolumeCapabilities: []*csi.VolumeCapability{capability},
	})
	n.must(err)
	id := made.GetVolume().GetVolumeId()
	n.t.Cleanup(func() {
		n.unpublishTo(id)
		_, err = n.controller.DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: id})
		n.must(err)
	})
	v := testVolume{handle: id, mode: mode, driver: csiloop.DriverName,
		change: func(e *volumesv1alpha1.NodeAttachment) {
			e.Driver, e.FSType, e.Capacity = csiloop.DriverName, fsType, resource.NewQuantity(mib<<20, resource.BinarySI)
			e.VolumeAttributes, e.MountOptions = made.GetVolume().GetVolumeContext(), nil
		}}
	return n.publishTo(v, capability)
}

// publishTo attaches the volume to the node; what is returned is the volume as this node sees it.
func (n *realNode) publishTo(v testVolume, capability *csi.VolumeCapability) testVolume {
	n.t.Helper()
	published, err := n.controller.ControllerPublishVolume(n.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.handle, NodeId: n.name, VolumeCapability: capability,
	})
	n.must(err)
	change := v.change
	v.change = func(e *volumesv1alpha1.NodeAttachment) {
		change(e)
		e.PublishContext = published.GetPublishContext()
	}
	return v
}

// unpublishTo detaches the volume from the node, whether the node let go or not.
func (n *realNode) unpublishTo(id string) {
	n.t.Helper()
	_, err := n.controller.ControllerUnpublishVolume(context.Background(),
		&csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: n.name})
	n.must(err)
}

func TestRealMountsThroughTheLoopDriver(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	c := newCluster(t)
	for layout, mkdir := range map[string]directory{
		"": plainDirectory, ", where the kubelet's directory and the agent's are symbolic links": linkedDirectory,
	} {
		for name, test := range map[string]func(*testing.T, *realNode){
			"a filesystem is written to, survives its agent, grows, and goes":     testRealFilesystem,
			"a block device is written to and goes":                               testRealBlock,
			"what an earlier agent bound for the kubelet is replaced":             testRealBound,
			"a sub path with an fsGroup is all that is seen":                      testRealSubPath,
			"a driver that is killed in each call is recovered from":              testRealDriverKilled,
			"a filesystem that was forced away is shut down":                      testRealForcedAway,
			"a file at the bare path is named, and the volume comes back":         testRealBareFile,
			"an unknown filesystem is named":                                      testRealUnknownFilesystem,
			"what the kubelet mounts and maps is seen until it has let go":        testRealKubelet,
			"a kubelet's filesystem that was forced away takes no more writes":    testRealKubeletAway,
			"what the kubelet staged under the agent's old device number goes on": testRealLaterLife,
			"what the kubelet staged under its own old device number goes on":     testRealLaterLifeOfKubelet,
			"from A to B by force and back, where the driver cuts access":         testThereAndBackByForce,
			"from A to B by force and back, where the driver does not":            testThereAndBackUnprotected,
		} {
			t.Run(name+layout, func(t *testing.T) { test(t, c.realNodeWith(t, mkdir)) })
		}
	}
}

func (n *realNode) end(v testVolume, intents ...*volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	for _, i := range intents {
		n.release(i)
	}
	n.gone(v)
	n.eventually("nothing mounted", func() bool {
		table, err := n.mounter.Table()
		n.must(err)
		return len(table.Below(n.dir)) == n.layout && len(n.leftovers()) == 0
	})
}

func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	err := wait.PollUntilContextTimeout(n.t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		n.t.Errorf("%s did not come about, want that it does", what)
	}
}

func (n *realNode) mountID(path string) int {
	n.t.Helper()
	table, err := n.mounter.Table()
	n.must(err)
	e, ok := table.At(path)
	if !ok {
		n.t.Fatalf("nothing is mounted at %s, want the volume", path)
	}
	return e.ID
}

func testRealFilesystem(t *testing.T, n *realNode) {
	harnesstest.NeedProgram(t, "mkfs.xfs")
	// ext4 grows online only for processes with CAP_SYS_RESOURCE, which containers often lack; xfs needs no more than a
	// mount does.
	v := n.volume(corev1.PersistentVolumeFilesystem, "xfs", 320)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	file := filepath.Join(path, "file")
	n.must(os.WriteFile(file, []byte("kept"), 0o600))
	n.settled(v)
	before := n.mountID(path)
	a.kill()
	a = n.start()
	a.rest()
	if n.mountID(path) != before {
		t.Errorf("%s was mounted again by the restart, want the mount of before", path)
	}
	size := blocks(t, path)
	_, err := n.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v.handle,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 640 << 20}})
	n.must(err)
	n.grow(v, "640Mi")
	n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
	if grown := blocks(t, path); grown <= size {
		t.Errorf("filesystem at %s has %d blocks, want more than %d", path, grown, size)
	}
	n.must(unix.Unmount(path, 0))
	n.eventually("the mount put back", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && string(data) == "kept"
	})
	n.ready(i)
	n.end(v, i)
}

// settled waits until the agent has reported the volume as it is after the last call.
func (n *node) settled(v testVolume) {
	n.t.Helper()
	n.state("the capacity", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.Capacity != nil
	})
}

func blocks(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Blocks
}

func testRealBlock(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeBlock, "", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.ready(i)
	info, err := os.Stat(got.Status.Path)
	n.must(err)
	if info.Mode()&fs.ModeDevice == 0 || !strings.HasPrefix(got.Status.DevicePath, "/dev/loop") {
		t.Errorf("mode %s of the published device, status.devicePath %s, want a device node and a loop device", info.Mode(),
			got.Status.DevicePath)
	}
	n.must(os.WriteFile(got.Status.Path, []byte("raw"), 0o600))
	n.settled(v)
	a.kill()
	n.start()
	data := make([]byte, 3)
	f, err := os.Open(got.Status.Path)
	n.must(err)
	_, err = f.Read(data)
	n.must(errors.Join(err, f.Close()))
	if string(data) != "raw" {
		t.Errorf("published device of intent %s: %q, want raw", got.Name, data)
	}
	n.end(v, i)
}

// testRealBound finds a node as an earlier agent left it: with the device bound where the kubelet does not count a
// bind.
func testRealBound(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeBlock, "", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.settled(v)
	dir := a.paths.GlobalMap(v.source())
	bound := filepath.Join(dir, string(i.UID))
	n.counted(dir, bound)
	a.stop()

	n.must(n.mounter.SetDeviceNodes(t.Context(), dir, nil))
	n.must(errors.Join(n.mounter.EnsureFile(t.Context(), bound, 0o600),
		n.mounter.Bind(t.Context(), path, bound, false, nil)))
	n.counted(dir)
	n.rewrite(a, v, func(r *record.Record) { r.Uses[0].Bound = bound })
	n.start()
	n.counted(dir, bound)
	table, err := n.mounter.Table()
	n.must(err)
	if left := table.All(bound); len(left) != 0 {
		t.Errorf("mounted at %s is %+v, want nothing", bound, left)
	}
	n.end(v, i)
	if _, err := os.Lstat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubelet's directory %s: error %v, want it gone", filepath.Dir(dir), err)
	}
}

// counted waits until a kubelet counts these and no others as users of a device.
func (n *realNode) counted(dir string, want ...string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("the kubelet's count of %q", want), func() bool {
		entries, err := os.ReadDir(dir)
		n.must(err)
		var devices []string
		for _, e := range entries {
			if e.Type()&fs.ModeDevice != 0 {
				devices = append(devices, filepath.Join(dir, e.Name()))
			}
		}
		return slices.Equal(devices, want)
	})
}

// rewrite changes the record of a volume on the disk.
func (n *realNode) rewrite(a *running, v testVolume, change func(*record.Record)) {
	n.t.Helper()
	path := a.store.Path(v.name())
	r, err := record.ReadRecord(path)
	n.must(err)
	change(r)
	data, err := json.Marshal(r)
	n.must(err)
	n.must(os.WriteFile(path, data, 0o600))
}

// testRealBareFile has a program write to the published path, and to the staging path, while nothing is mounted.
func testRealBareFile(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.settled(v)
	a.kill()
	bare := filepath.Join(path, "bare")
	n.must(errors.Join(unix.Unmount(path, 0), os.WriteFile(bare, []byte("mine"), 0o600)))
	a = n.start()
	named := func() bool {
		e := n.newest(i).Status.LastError
		return e != nil && e.Code == volumesv1alpha1.ReasonPathOccupied && strings.Contains(e.Message, `"bare"`)
	}
	n.eventually("the file named", named)
	n.must(os.Remove(bare))
	n.ready(i)
	n.settled(v)
	a.kill()
	n.must(errors.Join(unix.Unmount(path, 0), os.WriteFile(bare, []byte("mine"), 0o600)))
	n.release(i)
	n.start()
	n.eventually("the file named while the intent is released", named)
	if data, err := os.ReadFile(bare); err != nil || string(data) != "mine" {
		t.Errorf("file at the bare path of intent %s: %q, error %v, want it as it was", i.Name, data, err)
	}
	n.must(os.Remove(bare))
	n.end(v)
}

func (n *node) newest(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	got := &volumesv1alpha1.VolumeAttachmentIntent{}
	n.must(n.client.Get(n.t.Context(), client.ObjectKeyFromObject(i), got))
	return got
}

func testRealSubPath(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	n.start()
	n.attach(v, "uid-1")
	whole := n.want(v, "whole", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To[int64](2345)}
	})
	root := n.ready(whole).Status.Path
	n.must(os.MkdirAll(filepath.Join(root, "a", "b"), 0o770))
	n.must(os.WriteFile(filepath.Join(root, "a", "b", "inside"), nil, 0o600))
	n.must(os.Symlink("/etc", filepath.Join(root, "link")))
	part := n.want(v, "part", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.ReadOnly = true
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "a/b"}
	})
	path := n.ready(part).Status.Path
	if _, err := os.Stat(filepath.Join(path, "inside")); err != nil {
		t.Errorf("reading the sub path at %s: error %v, want none", path, err)
	}
	if err := os.WriteFile(filepath.Join(path, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing to %s, which is published read-only: error %v, want %v", path, err, syscall.EROFS)
	}
	info, err := os.Stat(root)
	n.must(err)
	if s := info.Sys().(*syscall.Stat_t); s.Gid != 2345 {
		t.Errorf("published path %s: group %d, want 2345", path, s.Gid)
	}
	out := n.want(v, "out", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "link"}
	})
	got := n.condition(out, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSubPathInvalid)
	if !meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionStalled) {
		t.Errorf("intent %s: conditions %+v, want it Stalled", got.Name, got.Status.Conditions)
	}
	n.end(v, out, part, whole)
}

func testRealDriverKilled(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	n.timeout = 3 * time.Second
	n.start()
	die := func(method string, when faults.Moment) {
		_, err := faults.Add(n.backing(), faults.Fault{Method: method, When: when, Action: faults.Die, Count: 1})
		n.must(err)
	}
	revive := func() {
		n.must(n.process.Wait(t.Context()))
		n.startDriver()
	}
	for round, when := range []faults.Moment{faults.Before, faults.After} {
		uid := fmt.Sprintf("uid-%d", round)
		die("NodeStageVolume", when)
		n.attach(v, uidOf(uid))
		i := n.want(v, "data-"+uid)
		revive()
		die("NodePublishVolume", when)
		revive()
		path := n.ready(i).Status.Path
		n.must(os.WriteFile(filepath.Join(path, uid), nil, 0o600))
		die("NodeUnpublishVolume", when)
		n.release(i)
		revive()
		die("NodeUnstageVolume", when)
		revive()
		n.end(v)
	}
}

func testRealForcedAway(_ *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	f, err := os.Create(filepath.Join(path, "file"))
	n.must(err)
	n.changeEntry(v, forceAway)
	n.eventually("the filesystem shut down", func() bool {
		_, err := f.Write([]byte("x"))
		return errors.Is(err, syscall.EIO)
	})
	n.must(ignoreEIO(f.Close()))
	n.end(v)
}

func ignoreEIO(err error) error {
	if errors.Is(err, syscall.EIO) {
		return nil
	}
	return err
}

func testRealUnknownFilesystem(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	change := v.change
	v.change = func(e *volumesv1alpha1.NodeAttachment) {
		change(e)
		e.FSType = "foofs"
		e.VolumeAttributes = maps.Clone(e.VolumeAttributes)
	}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonUnknownFSType)
	if !strings.Contains(got.Status.LastError.Message, "foofs") {
		t.Errorf("intent %s: message %q, want it to name foofs", got.Name, got.Status.LastError.Message)
	}
	n.attach(testVolume{handle: v.handle, driver: v.driver, change: change}, "uid-1")
	n.ready(i)
	n.end(v, i)
}
