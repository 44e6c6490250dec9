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
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/driver"
	csidriver "github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func TestRealMountsAreOfTheVolume(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	c := newCluster(t)
	unstage := func(n *realNode, v testVolume) {
		k := n.kubeletOf()
		k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
		k.unstage(v)
		n.must(os.MkdirAll(n.stageOf(v), 0o750))
	}
	unmount := func(n *realNode, v testVolume) { n.must(unix.Unmount(n.stageOf(v), 0)) }
	for name, between := range map[string]struct {
		step string
		do   func(*realNode, testVolume)
	}{
		"where a person unmounts the stage before the publication":  {"before publish", unmount},
		"where a person unmounts the stage as soon as it is there":  {"after stage", unmount},
		"where the kubelet undoes the stage as soon as it is there": {"after stage", unstage},
		"where nobody comes between":                                {"before publish", func(*realNode, testVolume) {}},
	} {
		t.Run(name, func(t *testing.T) { testRealBetween(t, c.realNode(t), between.step, between.do) })
	}
}

// testRealBetween has the agent publish through a driver that binds whatever is at the staging path, as most drivers
// do.
func testRealBetween(t *testing.T, n *realNode, step string, between func(*realNode, testVolume)) {
	earlier := n.drive
	n.drive = func(o *Options) {
		earlier(o)
		o.Registry = binding{o.Registry}
	}
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	n.at(step, sync.OnceFunc(func() { between(n, v) }))
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	synced(n, filepath.Join(path, "file"), "on the volume")
	if !n.holds(v, "on the volume") {
		t.Errorf("volume %s: what was written at the path of a Ready intent is not on it, want that it is", v.handle)
	}
	table, err := n.mounter.Table()
	n.must(err)
	if e, ok := table.At(path); !ok || e.FSType != "ext4" {
		t.Errorf("mount at %s: %+v, want an ext4", path, e)
	}
	n.end(v, i)
}

func (n *realNode) stageOf(v testVolume) string {
	return filepath.Join(fakeKubelet{n.node}.stageDir(v), "globalmount")
}

// binding is a registry whose drivers do not check what they publish.
type binding struct{ driver.Registry }

func (b binding) Get(name string) (driver.Driver, bool) {
	d, ok := b.Registry.Get(name)
	if !ok {
		return nil, false
	}
	return blind{d.(*csidriver.Driver)}, true
}

type blind struct{ *csidriver.Driver }

func (blind) Publish(_ context.Context, req driver.PublishRequest) error {
	table, err := mount.ReadTable(mount.SelfMountInfo)
	if err != nil {
		return err
	}
	if _, mounted := table.At(req.TargetPath); mounted {
		return nil
	}
	return errors.Join(os.MkdirAll(req.TargetPath, 0o750),
		unix.Mount(req.StagingPath, req.TargetPath, "", unix.MS_BIND, ""))
}
