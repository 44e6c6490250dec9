/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func TestRealMountsOfPods(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	c := newCluster(t)
	for layout, mkdir := range map[string]directory{
		"": plainDirectory, ", where the kubelet's directory and the agent's are symbolic links": linkedDirectory,
	} {
		for name, test := range map[string]func(*testing.T, *realNode){
			"pods write, read and are refused to write, over a restart, and nothing is left": testRealPods,
			"a pod sees the sub path of its intent, and no link leads out of it":             testRealPodSubPath,
			"an option of the intent holds in its pods":                                      testRealPodOptions,
			"a path at which nothing is published is never bound":                            testRealPodBarePath,
			"a filesystem that was forced away is shut down in its pods":                     testRealPodForcedAway,
		} {
			t.Run(name+layout, func(t *testing.T) { test(t, c.realNodeWith(t, mkdir)) })
		}
	}
}

// bound publishes to the pod.
func (n *realNode) bound(r *running, p testPod) {
	n.t.Helper()
	if err := p.answer(p.publish(r)); err != nil {
		n.t.Fatalf("publishing to pod %s: %v, want no error", p.name, err)
	}
}

func (n *realNode) unbound(r *running, p testPod) {
	n.t.Helper()
	if err := p.answer(p.unpublish(r)); err != nil {
		n.t.Fatalf("unpublishing pod %s: %v, want no error", p.name, err)
	}
	if _, err := os.Lstat(p.target()); !os.IsNotExist(err) {
		n.t.Errorf("target path of pod %s: error %v, want that it does not exist", p.name, err)
	}
}

func testRealPods(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	writer, reader := n.pod("writer", i), n.pod("reader", i)
	reader.readOnly = true
	n.bound(a, writer)
	n.bound(a, reader)
	n.must(os.WriteFile(filepath.Join(writer.target(), "file"), []byte("from the pod"), 0o600))
	for _, at := range []string{path, reader.target()} {
		if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "from the pod" {
			t.Errorf("file at %s: %q, error %v; want what the pod wrote", at, data, err)
		}
	}
	if err := os.WriteFile(filepath.Join(reader.target(), "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing through the mount of pod %s: error %v, want %v", reader.name, err, unix.EROFS)
	}
	before := n.mountID(writer.target())
	a.kill()
	a = n.start()
	n.bound(a, writer) // as a kubelet does after its own restart
	if n.mountID(writer.target()) != before {
		t.Errorf("%s was mounted again, want the mount of before", writer.target())
	}
	n.release(i)
	n.usedBy(i, "default/reader", "default/writer")
	n.unbound(a, writer)
	n.unbound(a, reader)
	n.end(v)
}

func testRealPodSubPath(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	whole := n.want(v, "whole")
	root := n.ready(whole).Status.Path
	n.must(errors.Join(os.Mkdir(filepath.Join(root, "part"), 0o755), os.WriteFile(filepath.Join(root, "part", "file"),
		[]byte("part"), 0o600), os.Symlink("/etc", filepath.Join(root, "etc")), os.Symlink("part", filepath.Join(root,
		"link"))))
	part := n.want(v, "part", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "part"}
	})
	n.ready(part)
	p := n.pod("web", part)
	n.bound(a, p)
	if entries, err := os.ReadDir(p.target()); err != nil || len(entries) != 1 || entries[0].Name() != "file" {
		t.Errorf("directory of pod %s: %v, error %v; want the part of the volume", p.name, entries, err)
	}
	// The tenant lays a link where the part was; what is bound stays the part.
	n.must(errors.Join(os.Rename(filepath.Join(root, "part"), filepath.Join(root, "moved")),
		os.Symlink("/etc", filepath.Join(root, "part"))))
	late := n.pod("late", part)
	n.bound(a, late)
	if data, err := os.ReadFile(filepath.Join(late.target(), "file")); err != nil || string(data) != "part" {
		t.Errorf("file of pod %s: %q, error %v; want that of the part", late.name, data, err)
	}
	for _, intent := range []string{"etc", "link"} {
		leading := n.want(v, intent, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: intent}
		})
		n.condition(leading, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSubPathInvalid)
		n.release(leading)
	}
	n.unbound(a, p)
	n.unbound(a, late)
	n.end(v, whole, part)
}

func testRealPodOptions(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.ReadOnly, i.Spec.Mount = true, &volumesv1alpha1.MountSpec{Options: []string{"noexec", "nosuid"}}
	})
	n.ready(i)
	p := n.pod("web", i)
	n.bound(a, p)
	var s unix.Statfs_t
	n.must(unix.Statfs(p.target(), &s))
	for name, flag := range map[string]int64{"ro": unix.ST_RDONLY, "noexec": unix.ST_NOEXEC, "nosuid": unix.ST_NOSUID} {
		if s.Flags&flag == 0 {
			t.Errorf("mount of pod %s does not have the option %s, want it as the intent has it", p.name, name)
		}
	}
	n.unbound(a, p)
	n.end(v, i)
}

// testRealPodBarePath has the publication taken away by another program, again and again, while pods come. Each call
// gets the volume or nothing.
func testRealPodBarePath(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.must(os.WriteFile(filepath.Join(path, "file"), []byte("volume"), 0o600))
	for range 10 {
		p := n.pod("web", i)
		answer := p.publish(a)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // it may be gone yet
			t.Fatal(err)
		}
		if err := p.answer(answer); err != nil {
			t.Errorf("publishing to pod %s: %v, want that it waits for the publication", p.name, err)
		}
		if data, err := os.ReadFile(filepath.Join(p.target(), "file")); err != nil || string(data) != "volume" {
			t.Fatalf("file of pod %s: %q, error %v; want that of the volume", p.name, data, err)
		}
		n.unbound(a, p)
	}
	n.ready(i)
	n.end(v, i)
}

func testRealPodForcedAway(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	n.bound(a, p)
	n.changeEntry(v, forceAway)
	n.eventually("the pod's filesystem shut down", func() bool {
		return errors.Is(os.WriteFile(filepath.Join(p.target(), "late"), nil, 0o600), unix.EIO)
	})
	late := n.pod("late", i)
	answer := late.publish(a)
	n.release(i)
	if err := late.answer(answer); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("publishing to pod %s: %v, want that it gets nothing of what was taken away", late.name, err)
	}
	if s := n.state("the volume's line", func(*volumesv1alpha1.NodeVolumeState) bool { return true }); len(
		s.Status.Volumes) != 1 || !s.Status.Volumes[0].InUse {
		t.Errorf("node state %+v, want the volume in use while a pod has its mount", s.Status.Volumes)
	}
	n.unbound(a, p)
	n.end(v)
}
