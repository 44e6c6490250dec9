/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

const (
	driverName    = "simulated.csi.hawser.io"
	driverTimeout = time.Minute
)

// driverOf is the machine's driver as one agent reaches it. What it does may outlast the agent, but not the call's
// deadline.
type driverOf struct {
	m *machine
	p *process
}

var _ driver.Driver = (*driverOf)(nil)

// call is one that is going on.
type call struct {
	boot int
	// mounts: it may mount something.
	mounts bool
}

func (d *driverOf) Name() string { return driverName }

func (d *driverOf) Stage(ctx context.Context, req driver.StageRequest) error {
	return d.call(ctx, "stage", req.Handle, req.StagingPath, func() error {
		return d.m.stage(req.Handle, req.StagingPath, req.Mode)
	})
}

func (d *driverOf) Publish(ctx context.Context, req driver.PublishRequest) error {
	return d.call(ctx, "publish", req.Handle, req.TargetPath, func() error {
		if !d.m.world.known(req.Handle) {
			return failed(driver.NotFound, "NotFound", "there is no such volume")
		}
		if req.Mode == corev1.PersistentVolumeBlock {
			return d.m.publishDevice(req.Handle, req.TargetPath)
		}
		return d.m.publish(req.StagingPath, req.TargetPath, req.ReadOnly)
	})
}

func (d *driverOf) Unpublish(ctx context.Context, req driver.UnpublishRequest) error {
	return d.call(ctx, "unpublish", req.Handle, req.TargetPath, func() error { return d.m.unpublish(req.TargetPath) })
}

func (d *driverOf) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	return d.call(ctx, "unstage", req.Handle, req.StagingPath, func() error {
		d.m.umount(req.StagingPath)
		delete(d.m.raw, req.Handle)
		return nil
	})
}

func failed(outcome driver.Outcome, code, message string) error {
	return &driver.Error{Outcome: outcome, Code: code, Message: message}
}

// call answers as the seed has it.
func (d *driverOf) call(ctx context.Context, operation, handle, path string, effect func() error) error {
	if err := d.p.pass(ctx, operation); err != nil {
		return failed(driver.Uncertain, "Canceled", err.Error())
	}
	w := d.m.world
	d.note(operation, handle)
	deadline, ok := ctx.Deadline()
	if !ok {
		return errors.New("a call without a deadline")
	}
	left := time.Until(deadline)
	if left <= 0 {
		return failed(driver.Transient, "DeadlineExceeded", "nothing was sent")
	}
	c, err := d.m.begin(handle, operation == "stage" || operation == "publish")
	if err != nil {
		w.chance.reach(callBusy)
		return err
	}
	say := func(how string) { w.log("%s: %s of %s at %s %s", d.p.name, operation, handle, short(path), how) }
	switch {
	case d.p.happens(callFinal):
		_ = d.m.end(handle, c, nil)
		say("fails")
		err = failed(driver.Transient, "Internal", "the seed has it so")
	case d.p.happens(callUncertain):
		if w.chance.draw(d.p.name, "effect").IntN(2) == 0 {
			_ = d.m.end(handle, c, effect) // nobody learns of it
		} else {
			_ = d.m.end(handle, c, nil)
		}
		say("ends, nobody knows how")
		err = failed(driver.Uncertain, "Unavailable", "the connection was lost")
	case d.p.happens(callLate):
		after := d.p.between(0, left)
		say(fmt.Sprintf("is given up and goes on for %s", after))
		w.later(after, func() { _ = d.m.end(handle, c, effect) })
		// A kubelet takes such a driver at its word, and leaves behind what comes after that.
		if w.harsh && !d.p.prompt && w.chance.draw(d.p.name, "restart").IntN(2) == 0 {
			say("is forgotten by the driver, which was restarted") // what it had started goes on
			d.m.forget(handle)
		}
		err = failed(driver.Uncertain, "Unavailable", "the connection was lost")
	case d.p.happens(callHangs):
		after := d.p.between(0, left)
		w.later(after, func() { _ = d.m.end(handle, c, effect) })
		say("hangs")
		<-ctx.Done()
		err = failed(driver.Uncertain, "DeadlineExceeded", "no answer")
	default:
		if err = sleep(ctx, d.p.between(0, left/20)); err != nil {
			w.later(0, func() { _ = d.m.end(handle, c, effect) })
			return failed(driver.Uncertain, "Canceled", err.Error())
		}
		if err = d.m.end(handle, c, effect); err == nil {
			say("is done")
		} else {
			say("fails: " + err.Error())
		}
	}
	if gate := d.p.pass(context.WithoutCancel(ctx), "having called "+operation); gate != nil {
		return gate
	}
	return err
}

// note a call. The agent has reported before that the volume is in use, under the attachment of its entry.
func (d *driverOf) note(operation, handle string) {
	w := d.m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(operation, "un") {
		d.m.undone++
	}
	if d.p == d.m.agent && !d.p.isDead() {
		w.checkReported(d.m, operation, handle)
	}
}

// begin a call for the volume. A driver works on one at a time.
func (m *machine) begin(handle string, mounts bool) (*call, error) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.busy[handle] != nil {
		return nil, failed(driver.Uncertain, "Aborted", "an operation for the volume is going on")
	}
	c := &call{boot: m.boot, mounts: mounts}
	m.busy[handle] = c
	return c, nil
}

// forget that a call is going on.
func (m *machine) forget(handle string) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	delete(m.busy, handle)
}

// end a call with its effect, unless the machine has rebooted meanwhile.
func (m *machine) end(handle string, c *call, effect func() error) error {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.busy[handle] == c {
		delete(m.busy, handle)
	}
	if c.boot != m.boot || effect == nil {
		return nil
	}
	return effect()
}

func (m *machine) stage(handle, path string, mode corev1.PersistentVolumeMode) error {
	d, attached := m.devices[handle]
	if !m.world.known(handle) {
		return failed(driver.NotFound, "NotFound", "there is no such volume")
	}
	if !attached {
		return failed(driver.Transient, "Internal", "the device is not there")
	}
	if e, ok := m.at(path); ok && e.handle == handle {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return failed(driver.Transient, "Internal", "the staging path is not there")
	}
	m.world.chance.reach(staged)
	if mode == corev1.PersistentVolumeBlock {
		m.raw[handle] = d.uid
		m.world.check()
		return nil
	}
	m.mount(d.mounted(handle, path))
	return nil
}

// mounted is the filesystem of a volume's device.
func (d device) mounted(handle, path string) mounted {
	e := mounted{handle: handle, uid: d.uid, seq: d.seq}
	e.Path, e.Root, e.FSType = path, "/", "ext4"
	e.Major, e.Minor, e.Source = loopMajor, d.minor, fmt.Sprintf("/dev/loop%d", d.minor)
	return e
}

// deviceNodes is the filesystem that has the node of every device.
const deviceNodes = "devtmpfs"

// publishDevice binds the node of the volume's device.
func (m *machine) publishDevice(handle, target string) error {
	if _, ok := m.at(target); ok {
		return nil
	}
	if _, ok := m.raw[handle]; !ok {
		return failed(driver.Transient, "FailedPrecondition", "the volume is not staged")
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return failed(driver.Transient, "Internal", err.Error())
	}
	e := m.devices[handle].mounted(handle, target)
	e.Root, e.Major, e.FSType = "/loop", 0, deviceNodes
	m.world.chance.reach(published)
	m.mount(e)
	return nil
}

// publish binds whatever is at the staging path, as most drivers do: where nothing is mounted that is a directory of
// the node's disk.
func (m *machine) publish(staging, target string, readOnly bool) error {
	if _, ok := m.at(target); ok {
		return nil
	}
	e, ok := m.at(staging)
	if !ok {
		e = mounted{Entry: ownDisk}
		e.Root = staging
	}
	e.Path = target
	if err := os.MkdirAll(target, 0o750); err != nil {
		return failed(driver.Transient, "Internal", err.Error())
	}
	m.touched(filepath.Dir(target))
	m.world.chance.reach(published)
	m.mount(e)
	if readOnly {
		m.makeReadOnly(target)
	}
	return nil
}

// known says whether there is such a volume.
func (w *World) known(handle string) bool {
	_, err := w.api.get(&corev1.PersistentVolume{}, client.ObjectKey{Name: strings.TrimPrefix(handle, "vol-")})
	return err == nil
}

func (m *machine) unpublish(target string) error {
	m.umount(target)
	if _, still := m.at(target); still {
		return nil
	}
	if err := m.removeDir(target); err != nil {
		return failed(driver.Transient, "Internal", err.Error())
	}
	m.touched(filepath.Dir(target))
	return nil
}

func (e mounted) describe() string {
	what := "a directory of the node's disk"
	if e.handle != "" {
		what = fmt.Sprintf("%s of %s", e.handle, e.uid)
	}
	return fmt.Sprintf("%s at %s", what, short(e.Path))
}

// short leaves out what is the same in all paths.
func short(path string) string {
	switch {
	case strings.Contains(path, "/kubernetes.io~csi/"):
		_, rest, _ := strings.Cut(path, "/pods/")
		uid, _, _ := strings.Cut(rest, "/")
		return "of " + uid
	case strings.Contains(path, "/published/"):
		return "published/" + filepath.Base(path)
	case strings.HasSuffix(path, "/globalmount"):
		return "globalmount"
	case strings.Contains(path, "/root/staged/"):
		return "the agent's reference"
	}
	return path
}

// registry of the one driver.
type registry struct{ *driverOf }

func (r registry) Get(name string) (driver.Driver, bool) { return r.driverOf, name == driverName }

func (r registry) Drivers() []volumesv1alpha1.NodeDriver {
	can := []string{"STAGE_UNSTAGE_VOLUME"}
	return []volumesv1alpha1.NodeDriver{{Name: driverName, NodeID: r.m.name, Capabilities: can}}
}

func (r registry) Changed() <-chan struct{} { return nil }
