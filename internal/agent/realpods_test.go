/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
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
			"a pod sees what the sub path of its intent names, and no link leads out of it":  testRealPodSubPath,
			"an option of the intent holds in its pods":                                      testRealPodOptions,
			"a read-only intent takes no writes, also where its driver ignores it":           testRealPodReadOnly,
			"a path at which nothing is published is never bound":                            testRealPodBarePath,
			"a filesystem that was forced away is shut down in its pods":                     testRealPodForcedAway,
			"links that are laid and taken away again meanwhile lead a pod nowhere else":     testRealPodLinksSwapped,
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
	// The tenant lays a link where the part was; what is bound stays the part, and no other pod gets it.
	name := filepath.Join(root, "part")
	n.must(errors.Join(os.Rename(name, filepath.Join(root, "moved")), os.Symlink("/etc", name)))
	late := n.pod("late", part)
	answer := late.publish(a)
	n.usedBy(part, "default/web")
	got := n.condition(part, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonUsedByPods)
	if m := got.Status.LastError.Message; !strings.Contains(m, "sub path part was renamed or removed") {
		t.Errorf("intent %s: message %q, want it to name the sub path", part.Name, m)
	}
	holds := func(p testPod, content string) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(p.target(), "file")); err != nil || string(data) != content {
			t.Errorf("file of pod %s: %q, error %v; want %q", p.name, data, err, content)
		}
	}
	holds(p, "part")
	makePart := func(content string) {
		n.must(errors.Join(os.Mkdir(name, 0o755), os.WriteFile(filepath.Join(name, "file"), []byte(content), 0o600)))
	}
	// It has its name again, and nothing reports that.
	moved := filepath.Join(root, "moved")
	n.must(errors.Join(os.Remove(name), os.Rename(moved, name)))
	again := n.pod("again", part)
	n.bound(a, again)
	holds(again, "part")
	n.unbound(a, again)
	n.must(late.answer(answer))
	n.unbound(a, late)
	// Another directory gets the name.
	n.must(os.Rename(name, moved))
	makePart("another part")
	later := n.pod("later", part)
	answer = later.publish(a)
	n.usedBy(part, "default/web")
	n.unbound(a, p)
	n.must(later.answer(answer))
	holds(later, "another part")
	n.unbound(a, later)
	// The part is removed and made again.
	n.must(os.RemoveAll(name))
	last := n.pod("last", part)
	answer = last.publish(a)
	n.condition(part, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSubPathInvalid)
	makePart("the last part")
	n.must(last.answer(answer))
	holds(last, "the last part")
	n.unbound(a, last)
	for _, intent := range []string{"etc", "link"} {
		leading := n.want(v, intent, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: intent}
		})
		n.condition(leading, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSubPathInvalid)
		n.release(leading)
	}
	n.end(v, whole, part)
}

// testRealPodLinksSwapped has the tenant exchange the part of the volume for a link, again and again, while the agent
// publishes it and pods come. What a pod gets is the part, or it gets nothing.
func testRealPodLinksSwapped(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	whole := n.want(v, "whole")
	root := n.ready(whole).Status.Path
	part, link := filepath.Join(root, "part"), filepath.Join(root, "link")
	n.must(errors.Join(os.Mkdir(part, 0o755), os.WriteFile(filepath.Join(part, "file"), []byte("part"), 0o600),
		os.Symlink("/etc", link)))
	stop := exchange(t, part, link)
	for range 10 {
		i := n.want(v, "part", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "part"}
		})
		n.intent(i, "published or refused", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
			return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == volumesv1alpha1.ReasonSubPathInvalid)
		})
		p := n.pod("web", i)
		answer := p.publish(a) // which waits while the sub path is refused
		select {
		case err := <-answer:
			data, read := os.ReadFile(filepath.Join(p.target(), "file"))
			if err != nil || read != nil || string(data) != "part" {
				t.Errorf("file of pod %s: %q, errors %v and %v; want that of the part", p.name, data, err, read)
			}
			n.unbound(a, p)
			n.release(i)
		case <-time.After(200 * time.Millisecond):
			n.release(i)
			if err := p.answer(answer); err == nil {
				n.unbound(a, p)
			}
		}
		n.intentGone(i, v)
	}
	stop()
	n.end(v, whole)
}

// exchange exchanges two files until stop is called.
func exchange(t *testing.T, one, other string) (stop func()) {
	t.Helper()
	ended, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-ended:
				failed <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
				failed <- err
				return
			}
		}
	}()
	return func() {
		close(ended)
		if err := <-failed; err != nil {
			t.Errorf("exchanging %s and %s: %v", one, other, err)
		}
	}
}

func TestAnAgentKilledAtAnyStepOfAPodLeavesNothingOfRealMounts(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	c := newCluster(t)
	steps, _ := c.podLife(t, "")
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			n := c.realNode(t)
			v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
			n.closesAt(step)
			_, killed := n.podLife(v, step, func(target string) bool {
				table, err := n.mounter.Table()
				n.must(err)
				e, ok := table.At(target)
				return ok && e.FSType == "ext4"
			})
			if !killed {
				t.Errorf("agent was not killed at step %q, want that it is", step)
			}
			n.end(v)
		})
	}
}

// closesAt closes what the agent has open before it is killed at the step, as the end of a process does.
func (n *realNode) closesAt(step string) {
	drive := n.drive
	n.drive = func(o *Options) {
		drive(o)
		opened := &openMounts{Mounts: o.Mounts}
		o.Mounts = opened
		next := o.Step
		o.Step = func(name string) {
			if name == step && n.dieAt == step { // the next agent passes it too
				opened.close()
			}
			next(name)
		}
	}
}

// openMounts remembers what was opened for a bind.
type openMounts struct {
	Mounts
	mu    sync.Mutex
	files []*os.File
}

func (m *openMounts) OpenMount(ctx context.Context, path string) (*os.File, error) {
	file, err := m.Mounts.OpenMount(ctx, path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.files = append(m.files, file)
	}
	return file, err
}

func (m *openMounts) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range m.files {
		_ = file.Close() // it may be closed already
	}
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

// writableOnly ignores that a publication is to be read-only.
type writableOnly struct{ driver.Driver }

func (d writableOnly) Publish(ctx context.Context, req driver.PublishRequest) error {
	req.ReadOnly = false
	return d.Driver.Publish(ctx, req)
}

func testRealPodReadOnly(t *testing.T, n *realNode) {
	n.replaceDrivers(func(d driver.Driver) driver.Driver { return writableOnly{d} })
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i, writing := n.want(v, "data", readOnly), n.want(v, "writing")
	path, writer := n.ready(i).Status.Path, n.ready(writing).Status.Path
	p := n.pod("web", i)
	n.bound(a, p)
	n.must(os.WriteFile(filepath.Join(writer, "file"), []byte("written"), 0o600))
	for _, at := range []string{path, p.target()} {
		if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "written" {
			t.Errorf("file at %s: %q, error %v; want what the other intent wrote", at, data, err)
		}
		if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing at %s, which is published read-only: error %v, want %v", at, err, unix.EROFS)
		}
	}
	n.unbound(a, p)
	n.end(v, i, writing)
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
