/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// dirtyMark fills the page cache of the old mount and nothing else.
const dirtyMark = "written on A after the last sync, never to reach the volume;"

func testThereAndBackByForce(t *testing.T, a *realNode) {
	thereAndBack(t, a, func(v testVolume) { a.unpublishTo(v.handle) }, true)
}

// testThereAndBackUnprotected: the driver forgets that the node has the volume and leaves its access as it was.
func testThereAndBackUnprotected(t *testing.T, a *realNode) {
	thereAndBack(t, a, func(v testVolume) { a.forgetPublication(v.handle) }, false)
}

// thereAndBack forces a volume away from a node whose agent is cut off, while its mount has pages that were never
// synced. Another node uses and changes the volume, then it comes back.
func thereAndBack(t *testing.T, a *realNode, detach func(testVolume), cuts bool) {
	harnesstest.NeedProgram(t, "fsck.ext4")
	b := a.realNodeIn(t, a.dir, a.controller, a.mkdir)
	v := a.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	change := v.change
	v.change = func(e *volumesv1alpha1.NodeAttachment) {
		change(e)
		// nothing but memory pressure and a sync brings the pages to the device
		e.MountOptions = []string{"commit=3600"}
	}
	agent := a.start()
	a.attach(v, "uid-a1")
	i := a.want(v, "data")
	path := a.ready(i).Status.Path
	synced(a, filepath.Join(path, "kept"), "by A")
	a.checkpointed(path)
	writtenBack := canary(t)
	old, err := os.Create(filepath.Join(path, "dirty"))
	a.must(err)
	_, err = old.WriteString(strings.Repeat(dirtyMark, 4096))
	a.must(err)
	a.settled(v)
	agent.kill()
	a.changeEntry(v, forceAway)
	detach(v)
	a.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) {
		e.DetachedTime = &e.Evidence.Time
		e.Evidence.Unprotected = !cuts
	})

	b.usesAndChanges(v)
	written := !cuts && a.holds(v, dirtyMark)

	// The node's agent is back: nothing of the old mount may get out any more, and then it lets go.
	image := a.content(v)
	agent = a.start()
	a.eventually("the old mount takes no more writes", func() bool {
		_, err := old.WriteString(dirtyMark)
		return errors.Is(err, syscall.EIO)
	})
	_ = old.Close() // who has a file open keeps the mount; what it could not write is lost
	a.gone(v)
	if written || !cuts && writtenBack() {
		a.end(v, i)
		agent.stop()
		// A sync of another program does that. The case in which the driver cuts access has the same assertions.
		t.Log("the kernel wrote the pages back before the agent shut the mount down, which is what unprotected means")
		return
	}
	if cuts && !bytes.Equal(image, a.content(v)) {
		t.Errorf("volume %s: the old mount changed it although its access was cut, want it unchanged", v.handle)
	}
	if a.holds(v, dirtyMark) {
		t.Errorf("volume %s: pages of the old mount reached it, want none", v.handle)
	}

	if !cuts {
		a.repair(v)
	}
	back := a.publishTo(v, capabilityOf(corev1.PersistentVolumeFilesystem, "ext4"))
	a.attach(back, "uid-a2")
	path = a.ready(i).Status.Path
	a.assertFile(filepath.Join(path, "kept"), "by B")
	a.assertFile(filepath.Join(path, "new"), "from B")
	if data, err := os.ReadFile(filepath.Join(path, "dirty")); err == nil && len(data) > 0 {
		t.Errorf("file dirty of volume %s holds %d bytes, want none", v.handle, len(data))
	}
	a.end(v, i)
	if cuts {
		out, err := exec.CommandContext(t.Context(), "fsck.ext4", "-fn", a.image(v)).CombinedOutput()
		if err != nil {
			t.Errorf("checking the filesystem: error %v, want none\n%s", err, out)
		}
	}
	agent.stop()
}

// canary mounts a filesystem of its own with pages that were never synced. The result reports whether the kernel has
// written them back: then it has done that with the pages of every mount.
func canary(t *testing.T) (writtenBack func() bool) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("making a filesystem with unwritten pages: %v", err)
		}
	}
	check(os.WriteFile(image, nil, 0o600))
	check(os.Truncate(image, 16<<20))
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop,commit=3600", image, dir}} {
		check(exec.CommandContext(t.Context(), command[0], command[1:]...).Run())
	}
	t.Cleanup(func() { check(exec.CommandContext(context.Background(), "umount", dir).Run()) })
	check(os.WriteFile(filepath.Join(dir, "dirty"), []byte(strings.Repeat(dirtyMark, 4096)), 0o600))
	return func() bool {
		content, err := os.ReadFile(image)
		check(err)
		return bytes.Contains(content, []byte(dirtyMark))
	}
}

// repair does what a person has to do where access was not cut: a shut down ext4 still writes its superblock, over what
// another node has made of the filesystem since. It is why such a detach is reported as unprotected.
func (n *realNode) repair(v testVolume) {
	n.t.Helper()
	const corrected = 1
	out, err := exec.CommandContext(n.t.Context(), "fsck.ext4", "-fy", n.image(v)).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > corrected) {
		n.t.Fatalf("checking the filesystem: error %v, want none that cannot be corrected\n%s", err, out)
	}
}

// usesAndChanges attaches the volume to the node, changes it, and takes it away again in good order.
func (n *realNode) usesAndChanges(v testVolume) {
	n.t.Helper()
	here := n.publishTo(v, capabilityOf(corev1.PersistentVolumeFilesystem, "ext4"))
	agent := n.start()
	n.attach(here, "uid-b1")
	i := n.want(here, "data")
	path := n.ready(i).Status.Path
	n.assertFile(filepath.Join(path, "kept"), "by A")
	synced(n, filepath.Join(path, "kept"), "by B")
	synced(n, filepath.Join(path, "new"), "from B")
	n.release(i)
	n.gone(here)
	agent.stop()
	n.unpublishTo(v.handle)
}

// checkpointed brings what the filesystem's journal holds to its place. What a journal has committed, the kernel writes
// there later, and it does so even after the filesystem was shut down: over what another node has made of it since. It
// is one reason why a detach that does not cut the node's access is reported as unprotected.
func (n *realNode) checkpointed(path string) {
	n.t.Helper()
	dir, err := os.Open(path)
	n.must(err)
	n.must(errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()))
}

func synced(n *realNode, path, text string) {
	n.t.Helper()
	f, err := os.Create(path)
	n.must(err)
	_, err = f.WriteString(text)
	n.must(errors.Join(err, f.Sync(), f.Close()))
	dir, err := os.Open(filepath.Dir(path))
	n.must(err)
	n.must(errors.Join(dir.Sync(), dir.Close()))
}

func (n *realNode) assertFile(path, want string) {
	n.t.Helper()
	data, err := os.ReadFile(path)
	n.must(err)
	if string(data) != want {
		n.t.Errorf("%s holds %q, want %q", filepath.Base(path), data, want)
	}
}

// image is the volume's data as the driver keeps it.
func (n *realNode) image(v testVolume) string {
	return filepath.Join(n.backing(), "volumes", v.handle+".img")
}

func (n *realNode) content(v testVolume) []byte {
	n.t.Helper()
	data, err := os.ReadFile(n.image(v))
	n.must(err)
	return data
}

func (n *realNode) holds(v testVolume, mark string) bool {
	n.t.Helper()
	return bytes.Contains(n.content(v), []byte(mark))
}

// forgetPublication is a driver's unpublish that does not cut the node's access.
func (n *realNode) forgetPublication(id string) {
	n.t.Helper()
	path := filepath.Join(n.backing(), "volumes", id+".json")
	data, err := os.ReadFile(path)
	n.must(err)
	var volume map[string]any
	n.must(json.Unmarshal(data, &volume))
	for key, value := range volume {
		if publications, ok := value.(map[string]any); ok && strings.EqualFold(key, "publications") {
			delete(publications, n.name)
		}
	}
	data, err = json.Marshal(volume)
	n.must(err)
	n.must(os.WriteFile(path, data, 0o600))
}

// realKubelet mounts with the node's driver, at the places and with the records of a kubelet.
type realKubelet struct {
	fakeKubelet
	driver csi.NodeClient
	real   *realNode
}

func (n *realNode) kubeletOf() realKubelet {
	n.t.Helper()
	conn, err := n.process.Dial()
	n.must(err)
	n.t.Cleanup(func() { n.must(conn.Close()) })
	return realKubelet{fakeKubelet: fakeKubelet{n.node}, driver: csi.NewNodeClient(conn), real: n}
}

// contextOf is what the controller's publish answered.
func contextOf(v testVolume) map[string]string {
	var e volumesv1alpha1.NodeAttachment
	v.change(&e)
	return e.PublishContext
}

func (k realKubelet) stage(v testVolume) {
	k.t.Helper()
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
	staging := filepath.Join(k.stageDir(v), "globalmount")
	k.must(os.MkdirAll(staging, 0o750))
	_, err := k.driver.NodeStageVolume(k.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.handle, StagingTargetPath: staging, PublishContext: contextOf(v),
		VolumeCapability: capabilityOf(corev1.PersistentVolumeFilesystem, "ext4"),
	})
	k.must(err)
}

// publish returns where the pod finds the volume.
func (k realKubelet) publish(v testVolume, pod string) string {
	k.t.Helper()
	k.write(filepath.Join(k.podDir(v, pod), "vol_data.json"), kubeletRecord(v))
	target := filepath.Join(k.podDir(v, pod), "mount")
	_, err := k.driver.NodePublishVolume(k.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.handle, StagingTargetPath: filepath.Join(k.stageDir(v), "globalmount"), TargetPath: target,
		PublishContext: contextOf(v), VolumeCapability: capabilityOf(corev1.PersistentVolumeFilesystem, "ext4"),
	})
	k.must(err)
	return target
}

func (k realKubelet) unpublish(v testVolume, pod string) {
	k.t.Helper()
	target := filepath.Join(k.podDir(v, pod), "mount")
	k.unlessBusy(func() error {
		_, err := k.driver.NodeUnpublishVolume(k.t.Context(),
			&csi.NodeUnpublishVolumeRequest{VolumeId: v.handle, TargetPath: target})
		return err
	})
	k.must(os.RemoveAll(k.podDir(v, pod)))
}

// unlessBusy calls the driver until nothing keeps the mount busy, as a kubelet does: whatever this process has open is
// for a moment open in every program, too, that it starts meanwhile.
func (k realKubelet) unlessBusy(call func() error) {
	k.t.Helper()
	k.eventually("the driver's success", func() bool {
		err := call()
		if err != nil && !strings.Contains(err.Error(), syscall.EBUSY.Error()) {
			k.t.Fatal(err)
		}
		return err == nil
	})
}

func (k realKubelet) unstage(v testVolume) {
	k.t.Helper()
	staging := filepath.Join(k.stageDir(v), "globalmount")
	k.unlessBusy(func() error {
		_, err := k.driver.NodeUnstageVolume(k.t.Context(),
			&csi.NodeUnstageVolumeRequest{VolumeId: v.handle, StagingTargetPath: staging})
		return err
	})
	k.must(os.Remove(staging))
	k.must(os.RemoveAll(k.stageDir(v)))
}

func testRealKubelet(_ *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	k := n.kubeletOf()
	a := n.start()
	n.attach(v, "uid-1")
	k.stage(v)
	k.publish(v, "pod-1")
	n.line(v, "the kubelet's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && l.StagedPath != "" && strings.HasPrefix(l.DevicePath, "/dev/loop")
	})
	// An intent comes and goes; the kubelet's mounts stay.
	i := n.want(v, "data")
	n.ready(i)
	n.release(i)
	n.line(v, "the kubelet's line again", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && l.Error == nil && len(l.Publications) == 0
	})
	a.rest()
	a.writes.reset()
	n.must(os.WriteFile(filepath.Join(k.podDir(v, "pod-1"), "mount", "file"), []byte("x"), 0o600))
	k.unpublish(v, "pod-1")
	k.unstage(v)
	n.end(v)
}

func testRealKubeletAway(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	k := n.kubeletOf()
	a := n.start()
	n.attach(v, "uid-1")
	k.stage(v)
	target := k.publish(v, "pod-1")
	f, err := os.Create(filepath.Join(target, "file"))
	n.must(err)
	n.proven(a, v)
	n.changeEntry(v, forceAway)
	n.eventually("the filesystem shut down", func() bool {
		_, err := f.WriteString("x")
		return errors.Is(err, syscall.EIO)
	})
	n.must(ignoreEIO(f.Close()))
	n.looked()
	n.line(v, "the line while the kubelet has it mounted", usedByKubelet("uid-1"))
	if n.mountID(target) == 0 {
		t.Errorf("nothing is mounted at %s, want the kubelet's mount, which is the kubelet's to undo", target)
	}
	k.unpublish(v, "pod-1")
	k.unstage(v)
	n.end(v)
}

// testRealLaterLife: what the agent had mounted is gone while it is not there, and the kubelet has staged the next
// attachment at the same place.
func testRealLaterLife(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	k := n.kubeletOf()
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.settled(v)
	a.kill()
	before := n.deviceOf(path)
	_, err := k.driver.NodeUnpublishVolume(t.Context(),
		&csi.NodeUnpublishVolumeRequest{VolumeId: v.handle, TargetPath: path})
	n.must(err)
	n.must(unix.Unmount(filepath.Join(n.root, "staged", record.Hash(v.name())), 0))
	k.unstage(v)
	n.attach(v, "uid-2")
	k.stage(v)
	target := k.publish(v, "pod-1")
	if device := n.deviceOf(target); device != before {
		t.Logf("the device number is %s and was %s", device, before)
	}
	n.start()
	n.line(v, "the new attachment in use", func(l *volumesv1alpha1.NodeVolume) bool {
		return l.InUse && l.AttachmentUID == "uid-2" && len(l.Publications) == 1
	})
	n.ready(i)
	synced(n, filepath.Join(target, "file"), "goes on")
	n.release(i)
	n.line(v, "the kubelet's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-2")(l) && len(l.Publications) == 0
	})
	synced(n, filepath.Join(target, "file"), "goes on still")
	k.unpublish(v, "pod-1")
	k.unstage(v)
	n.end(v)
}

func (n *realNode) deviceOf(path string) string {
	n.t.Helper()
	table, err := n.mounter.Table()
	n.must(err)
	e, _ := table.At(path)
	return fmt.Sprintf("%d:%d", e.Major, e.Minor)
}

// testRealLaterLifeOfKubelet: the kubelet undid its stage and died before it removed its record; the next one staged
// the next attachment.
func testRealLaterLifeOfKubelet(_ *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	k := n.kubeletOf()
	a := n.start()
	n.attach(v, "uid-1")
	k.stage(v)
	n.proven(a, v)
	a.kill()
	_, err := k.driver.NodeUnstageVolume(n.t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId: v.handle, StagingTargetPath: filepath.Join(k.stageDir(v), "globalmount"),
	})
	n.must(err)
	n.attach(v, "uid-2")
	k.stage(v)
	target := k.publish(v, "pod-1")
	a = n.start()
	n.looked()
	a.rest()
	synced(n, filepath.Join(target, "file"), "goes on")
	k.unpublish(v, "pod-1")
	k.unstage(v)
	n.end(v)
}
