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
	"testing"

	"golang.org/x/sys/unix"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/csiloop"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func TestRealVolumesOfOneSourceDoNotWaitForEachOther(t *testing.T) {
	harnesstest.NeedRoot(t)
	c := newCluster(t)
	for layout, mkdir := range map[string]func(*testing.T) directory{
		"plain":                                 func(*testing.T) directory { return plainDirectory },
		"bound from a disk that shares changes": func(t *testing.T) directory { return boundDirectory(t, unix.MS_SHARED) },
	} {
		for name, of := range map[string]func(handle string) string{
			"of one directory": func(string) string { return "export" },
			"where the other one shows a part": func(handle string) string {
				return map[string]string{"one": "export", "two": "export/part"}[handle]
			},
			"where the first one shows a part": func(handle string) string {
				return map[string]string{"one": "export/part", "two": "export"}[handle]
			},
			"of directories beside each other": func(handle string) string { return handle },
		} {
			t.Run(name+", "+layout, func(t *testing.T) { testOneSource(c.realNodeWith(t, mkdir(t)), of) })
		}
	}
}

// testOneSource releases one of two volumes while a pod uses the other, and then the other one.
func testOneSource(n *realNode, of func(handle string) string) {
	n.share(of)
	a := n.start()
	one, two := n.shared("one"), n.shared("two")
	first, second := n.want(one, "first"), n.want(two, "second")
	n.ready(first)
	file := filepath.Join(n.ready(second).Status.Path, "file")
	p := n.pod("web", second)
	n.must(p.answer(p.publish(a)))

	n.release(first)
	n.gone(one)
	n.must(os.WriteFile(file, nil, 0o600))
	n.must(p.answer(p.unpublish(a)))
	n.end(two, second)
}

func TestRealVolumesOfOneSourceEndTogether(t *testing.T) {
	harnesstest.NeedRoot(t)
	n := newCluster(t).realNode(t)
	n.share(func(string) string { return "export" })
	n.start()
	one, two := n.shared("one"), n.shared("two")
	first, second := n.want(one, "first"), n.want(two, "second")
	n.ready(first)
	n.ready(second)
	n.release(first)
	n.release(second)
	n.gone(one)
	n.end(two)
}

func (n *realNode) shared(handle string) testVolume {
	v := testVolume{handle: handle, driver: csiloop.DriverName, change: func(e *volumesv1alpha1.NodeAttachment) {
		e.Driver, e.FSType = csiloop.DriverName, ""
	}}
	n.attach(v, uidOf("uid-"+handle))
	return v
}

// share has the driver bind directories of a filesystem that it keeps mounted, as drivers of shares do.
func (n *realNode) share(of func(handle string) string) {
	n.t.Helper()
	base := n.t.TempDir()
	n.must(unix.Mount("share", base, "tmpfs", 0, ""))
	n.t.Cleanup(func() { n.must(unix.Unmount(base, 0)) })
	earlier := n.drive
	n.drive = func(o *Options) {
		earlier(o)
		o.Registry = sharing{o.Registry, base, of}
	}
}

// sharing is a registry whose drivers bind directories below base.
type sharing struct {
	driver.Registry
	base string
	// of names the directory of a volume.
	of func(handle string) string
}

func (s sharing) Get(name string) (driver.Driver, bool) {
	d, ok := s.Registry.Get(name)
	return sharingDriver{d, s}, ok
}

type sharingDriver struct {
	driver.Driver
	sharing
}

func (d sharingDriver) Stage(_ context.Context, req driver.StageRequest) error {
	if mounted(req.StagingPath) {
		return nil
	}
	dir := filepath.Join(d.base, d.of(req.Handle))
	return errors.Join(os.MkdirAll(dir, 0o755), unix.Mount(dir, req.StagingPath, "", unix.MS_BIND, ""))
}

func (sharingDriver) Publish(_ context.Context, req driver.PublishRequest) error {
	if mounted(req.TargetPath) {
		return nil
	}
	return errors.Join(os.MkdirAll(req.TargetPath, 0o755),
		unix.Mount(req.StagingPath, req.TargetPath, "", unix.MS_BIND, ""))
}

func (sharingDriver) Unpublish(_ context.Context, req driver.UnpublishRequest) error {
	return unmounted(req.TargetPath)
}

func (sharingDriver) Unstage(_ context.Context, req driver.UnstageRequest) error {
	return unmounted(req.StagingPath)
}

func mounted(path string) bool {
	table, err := mount.ReadTable(mount.SelfMountInfo)
	return err == nil && len(table.All(path)) > 0
}

func unmounted(path string) error {
	if err := unix.Unmount(path, 0); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

func TestAMountOfTheSameSourceIsAUseUnlessItIsAnotherVolumes(t *testing.T) {
	other := filepath.Join("/", "kubelet", "other")
	recorded := func(phase record.Phase) func(*bench) {
		return func(b *bench) {
			b.must(b.agent.store.Save(&record.Record{Schema: record.Schema, VolumeName: "other",
				Stage: record.Stage{Path: other, Phase: phase}}))
		}
	}
	ofKubelet := func(volumes ...string) func(*bench) {
		return func(b *bench) {
			b.agent.observer.Last.Uses = map[string]kubelet.TrackedUse{}
			for _, v := range volumes {
				b.agent.observer.Last.Uses[v] = kubelet.TrackedUse{Mounts: []string{other}}
			}
		}
	}
	for name, test := range map[string]struct {
		known func(*bench)
		uses  bool
	}{
		"nothing is known of it":                    {func(*bench) {}, true},
		"another volume is staged there":            {recorded(record.PhaseDone), false},
		"another volume may be staged there":        {recorded(record.PhaseUncertain), false},
		"another volume was staged there":           {recorded(record.PhaseNone), true},
		"the kubelet has another volume there":      {ofKubelet("other"), false},
		"the kubelet has this volume there":         {ofKubelet("kubernetes.io/csi/" + fakeDriverName + "^vol"), true},
		"the kubelet may have either of both there": {ofKubelet("other", "kubernetes.io/csi/"+fakeDriverName+"^vol"), true},
		"the record of another volume there was lost": {
			func(b *bench) {
				recorded(record.PhaseDone)(b)
				b.must(b.agent.store.Remove("other"))
			}, true,
		},
		"a pod has another volume there": {func(b *bench) {
			b.must(os.MkdirAll(b.agent.paths.PodBinds(), 0o700))
			b.must(b.agent.pods.Add(record.PodBind{Target: other, VolumeName: "other"}, false))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.unused()
			b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", other))
			test.known(b)
			if err := b.act(plan.Unstage); test.uses {
				b.refused(err, volumesv1alpha1.ReasonSharedByKubelet)
			} else if err != nil {
				t.Errorf("unstaging volume vol, which is mounted at %s too: error %v, want none", other, err)
			}
		})
	}
}
