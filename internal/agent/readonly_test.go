/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
	"github.com/hawser-io/hawser/test/holder"
)

// otherDrivers is a registry of drivers that do something in another way.
type otherDrivers struct {
	driver.Registry
	other func(driver.Driver) driver.Driver
}

func (r otherDrivers) Get(name string) (driver.Driver, bool) {
	d, ok := r.Registry.Get(name)
	return r.other(d), ok
}

// replaceDrivers has the agents that start from now on use other drivers.
func (n *realNode) replaceDrivers(other func(driver.Driver) driver.Driver) {
	drive := n.drive
	n.drive = func(o *Options) {
		drive(o)
		o.Registry = otherDrivers{o.Registry, other}
	}
}

// plainBind publishes a device read-only by a read-only bind mount, as many drivers do.
type plainBind struct{ driver.Driver }

func (d plainBind) Publish(ctx context.Context, req driver.PublishRequest) error {
	devices, err := loopdev.Find(req.PublishContext["link"])
	if err != nil || len(devices) != 1 {
		return fmt.Errorf("devices %v: %w", devices, err)
	}
	m := mount.New(mount.Options{})
	if err := m.EnsureFile(ctx, req.TargetPath, operation.PublishedFileMode); err != nil {
		return err
	}
	return m.Bind(ctx, devices[0].Path, req.TargetPath, req.ReadOnly, nil)
}

func TestARealReadOnlyDeviceTakesNoWrites(t *testing.T) {
	harnesstest.NeedRoot(t)
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, *realNode, testVolume){
		"through its path, over a restart, until it is released": testReadOnlyDevice,
		"is refused while another intent writes":                 testReadOnlyBesideAWriter,
		"keeps a writer waiting":                                 testAWriterBesideReadOnly,
		"is refused while a process writes":                      testReadOnlyBesideAProcess,
		"is refused while the kubelet uses the device":           testReadOnlyBesideTheKubelet,
		"stays so until who has it open for writing lets go":     testReadOnlyStaysForAnOpenDescriptor,
		"wherever the agent dies on the way":                     testReadOnlyWhereverTheAgentDies,
	} {
		t.Run(name, func(t *testing.T) {
			n := c.realNode(t)
			n.replaceDrivers(func(d driver.Driver) driver.Driver { return plainBind{d} })
			n.timeout = 3 * time.Second
			v := n.volume(corev1.PersistentVolumeBlock, "", 64)
			t.Cleanup(func() { n.takesWrites(v) })
			n.attach(v, "uid-1")
			test(t, n, v)
		})
	}
}

// takesWrites leaves no device behind that refuses writes: it keeps that for what it is used for next.
func (n *realNode) takesWrites(v testVolume) {
	devices, err := loopdev.Find(contextOf(v)["link"])
	n.must(err)
	for _, found := range devices {
		d, err := n.mounter.DeviceNode(context.Background(), found.Path)
		n.must(err)
		n.must(n.mounter.SetReadOnly(context.Background(), d, false))
	}
}

func readOnly(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true }

// writeTo the device, not only to the page cache.
func writeTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeDevice == 0 {
		err = errors.New("no device is there yet")
	}
	if err == nil {
		_, err = f.WriteString("written")
	}
	return errors.Join(err, f.Close())
}

func (n *realNode) refusesWrites(path string) {
	n.t.Helper()
	if err := writeTo(path); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		n.t.Errorf("writing to %s, which is published read-only: error %v, want EPERM or EACCES", path, err)
	}
}

func testReadOnlyDevice(_ *testing.T, n *realNode, v testVolume) {
	a := n.start()
	i, also := n.want(v, "data", readOnly), n.want(v, "also", readOnly)
	path, second := n.ready(i).Status.Path, n.ready(also).Status.Path
	n.refusesWrites(path)
	n.refusesWrites(second)
	a.kill()
	n.start()
	n.looked()
	n.release(i)
	n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReleased)
	n.refusesWrites(second)
	n.update(also, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = false })
	n.eventually("a publication that can be written to", func() bool { return writeTo(second) == nil })
	n.end(v, also)
}

func testReadOnlyBesideAWriter(_ *testing.T, n *realNode, v testVolume) {
	n.start()
	w := n.want(v, "writer")
	path := n.ready(w).Status.Path
	i := n.want(v, "data", readOnly)
	got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReadOnlyNotEnforced)
	if m := got.Status.LastError.Message; !strings.Contains(m, "default/"+w.Name) || got.Status.Path != "" {
		n.t.Errorf("intent %s: path %q and message %q, want no path, and the intent %s named", got.Name, got.Status.Path, m,
			w.Name)
	}
	n.must(writeTo(path))
	n.release(w)
	n.refusesWrites(n.ready(i).Status.Path)
	n.end(v, i)
}

func testAWriterBesideReadOnly(_ *testing.T, n *realNode, v testVolume) {
	n.start()
	i := n.want(v, "data", readOnly)
	path := n.ready(i).Status.Path
	w := n.want(v, "writer")
	got := n.condition(w, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonDeviceReadOnly)
	if m := got.Status.LastError.Message; !strings.Contains(m, "default/"+i.Name) {
		n.t.Errorf("intent %s: message %q, want it to name intent %s", got.Name, m, i.Name)
	}
	n.refusesWrites(path)
	n.release(i)
	n.must(writeTo(n.ready(w).Status.Path))
	n.end(v, w)
}

func testReadOnlyBesideAProcess(t *testing.T, n *realNode, v testVolume) {
	n.start()
	w := n.want(v, "writer")
	p := holder.Start(t, "exec 7<>"+n.ready(w).Status.DevicePath, nil)
	n.update(w, readOnly)
	got := n.condition(w, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReadOnlyNotEnforced)
	if m := got.Status.LastError.Message; !strings.Contains(m, fmt.Sprintf("process %d (sh)", p.PID)) {
		t.Errorf("intent %s: message %q, want it to name process %d", got.Name, m, p.PID)
	}
	p.End()
	n.refusesWrites(n.ready(w).Status.Path)
	n.end(v, w)
}

func testReadOnlyBesideTheKubelet(_ *testing.T, n *realNode, v testVolume) {
	n.start()
	data := record.Paths{Kubelet: n.kubelet}.KubeletData(v.source())
	fakeKubelet{n.node}.write(data, kubeletRecord(v))
	i := n.want(v, "data", readOnly)
	n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReadOnlyNotEnforced)
	n.must(os.RemoveAll(filepath.Dir(data)))
	n.refusesWrites(n.ready(i).Status.Path)
	n.end(v, i)
}

func testReadOnlyStaysForAnOpenDescriptor(t *testing.T, n *realNode, v testVolume) {
	n.start()
	i := n.want(v, "data", readOnly)
	device := n.ready(i).Status.DevicePath
	p := holder.Start(t, "exec 7<>"+device, nil)
	n.release(i)
	n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonDeviceHeld)
	n.refusesWrites(device)
	p.End()
	n.end(v)
}

func testReadOnlyWhereverTheAgentDies(t *testing.T, n *realNode, v testVolume) {
	for round, step := range []string{"before read-only", "after read-only", "before writable", "after writable"} {
		n.dieAt = step
		a := n.start()
		i := n.want(v, fmt.Sprintf("data-%d", round), readOnly)
		if strings.HasSuffix(step, "writable") {
			n.ready(i)
			n.release(i)
		}
		select {
		case <-a.dead:
		case <-time.After(patience):
			t.Fatalf("the agent did not come to %s, want that it does", step)
		}
		n.dieAt = ""
		a = n.start()
		if !strings.HasSuffix(step, "writable") {
			n.refusesWrites(n.ready(i).Status.Path)
			n.release(i)
		}
		n.gone(v)
		w := n.want(v, fmt.Sprintf("writer-%d", round))
		if err := writeTo(n.ready(w).Status.Path); err != nil {
			t.Errorf("killed %s: writing to the device afterwards: error %v, want none", step, err)
		}
		n.end(v, w)
		a.kill()
	}
}
