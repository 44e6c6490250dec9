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
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// fakeDriver mounts on a fakeNode. Like a real one it outlives agents.
type fakeDriver struct {
	node *fakeNode

	mu    sync.Mutex
	calls []string
	// errs are given once each, by method; with after the effect comes about all the same.
	errs  map[string][]error
	after bool
	// hangs by method and handle: the call blocks until the channel is closed, and ignores its context.
	hangs map[string]chan struct{}
	// before is called before each call has its effect.
	before func(method, handle string) error
	// inner is a directory inside of every volume.
	inner string
	// fsType that volumes carry whatever was asked for.
	fsType string
	// stageless: the driver stages nothing and mounts where it publishes. What it publishes is a directory of the node's
	// disk if directory names one.
	stageless bool
	directory string
	// unlabelled: the driver ignores an option with a label.
	unlabelled bool
	// writable: the driver ignores that a publication is to be read-only.
	writable bool
	// nothing: the driver reports success of a publication without mounting anything.
	nothing  bool
	called   chan struct{}
	stages   map[string]driver.StageRequest
	publishs map[string]driver.PublishRequest
	// unpublished and unstaged are what was asked last.
	unpublished driver.UnpublishRequest
	unstaged    driver.UnstageRequest
	capacity    map[string]resource.Quantity
	expands     []driver.ExpandRequest
	// known are the volumes that exist; nil: any that is asked for.
	known map[string]bool
	// problems that it reports of every volume and of its storage.
	problems, storage []volumesv1alpha1.HealthProblem
}

const fakeDriverName = "fake.csi.hawser.io"

func newFakeDriver(n *fakeNode) *fakeDriver {
	return &fakeDriver{
		node: n, errs: map[string][]error{}, hangs: map[string]chan struct{}{}, capacity: map[string]resource.Quantity{},
		called: make(chan struct{}), stages: map[string]driver.StageRequest{}, publishs: map[string]driver.PublishRequest{},
	}
}

func (d *fakeDriver) Name() string { return fakeDriverName }

func (d *fakeDriver) enter(ctx context.Context, method, handle string) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Outcome: driver.Transient, Code: "Canceled", Message: "nothing was sent", Err: err}
	}
	d.mu.Lock()
	d.calls = append(d.calls, method+" "+handle)
	close(d.called)
	d.called = make(chan struct{})
	before, hang := d.before, d.hangs[method+" "+handle]
	var err error
	if errs := d.errs[method]; len(errs) > 0 {
		err, d.errs[method] = errs[0], errs[1:]
	}
	d.mu.Unlock()
	if before != nil {
		if err := before(method, handle); err != nil {
			return err
		}
	}
	if hang != nil {
		<-hang
	}
	if err == nil && handle != "" && !d.knows(handle) && !strings.HasPrefix(method, "un") {
		return &driver.Error{Outcome: driver.NotFound, Code: "NotFound", Message: "there is no such volume"}
	}
	return err
}

func (d *fakeDriver) knows(handle string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known == nil || d.known[handle]
}

func (d *fakeDriver) made() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

func (d *fakeDriver) fail(method string, errs ...error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs[method] = append(d.errs[method], errs...)
}

func (d *fakeDriver) hang(method, handle string) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan struct{})
	d.hangs[method+" "+handle] = c
	return func() {
		d.mu.Lock()
		delete(d.hangs, method+" "+handle)
		d.mu.Unlock()
		close(c)
	}
}

func (d *fakeDriver) staged(handle string) driver.StageRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stages[handle]
}

func (d *fakeDriver) published(path string) driver.PublishRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.publishs[path]
}

func (d *fakeDriver) setBefore(f func(method, handle string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// expanded are the successful requests.
func (d *fakeDriver) expanded() []driver.ExpandRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.expands)
}

// clearHang lets later calls through; the one that hangs goes on hanging.
func (d *fakeDriver) clearHang(method, handle string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hangs, method+" "+handle)
}

// count says how often the call was made; more is closed when another call was made.
func (d *fakeDriver) count(call string) (n int, more <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c == call {
			n++
		}
	}
	return n, d.called
}

func minorOf(handle string) int {
	sum := 0
	for _, c := range handle {
		sum = sum*31 + int(c)
	}
	return sum & 0xfffff
}

// device is where the volume's device is found in the first boot.
func device(handle string) string { return fmt.Sprintf("/dev/loop%d", minorOf(handle)) }

func (d *fakeDriver) Stage(ctx context.Context, req driver.StageRequest) error {
	err := d.enter(ctx, "stage", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.mu.Lock()
	d.stages[req.Handle] = req
	d.mu.Unlock()
	if _, ok := d.node.at(req.StagingPath); !ok && req.Mode != corev1.PersistentVolumeBlock && !d.stageless {
		fsType := req.FSType
		if d.fsType != "" {
			fsType = d.fsType
		}
		e := d.node.filesystemOf(req.Handle, fsType, req.StagingPath)
		e.SuperOptions = d.labelOf(req.MountOptions)
		d.node.mount(e)
	}
	return err
}

// labelOf are the options that the mount table shows of these: those of SELinux alone. A bind mount has the label of
// its filesystem, whatever it is asked for.
func (d *fakeDriver) labelOf(options []string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool {
		return d.unlabelled || !strings.HasPrefix(o, "context=")
	})
}

func (d *fakeDriver) Publish(ctx context.Context, req driver.PublishRequest) error {
	err := d.enter(ctx, "publish", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.mu.Lock()
	d.publishs[req.TargetPath] = req
	d.mu.Unlock()
	if _, ok := d.node.at(req.TargetPath); ok || d.nothing {
		return err
	}
	e := d.node.bindOf(req.StagingPath, req.TargetPath) // like most drivers, whatever is there
	if d.stageless || req.Mode == corev1.PersistentVolumeBlock {
		e = d.node.filesystemOf(req.Handle, req.FSType, req.TargetPath)
		e.SuperOptions = d.labelOf(req.MountOptions)
	}
	if d.directory != "" {
		e = d.node.bindOf(d.directory, req.TargetPath)
	}
	if req.ReadOnly && !d.writable {
		e.Options = []string{"ro"}
	}
	if req.Mode == corev1.PersistentVolumeBlock && d.directory == "" {
		e.Root, e.Major, e.FSType = "/loop", 0, "devtmpfs"
	}
	if req.Mode == corev1.PersistentVolumeBlock {
		if err := os.WriteFile(req.TargetPath, nil, 0o600); err != nil {
			return err
		}
	} else if err := os.MkdirAll(filepath.Join(req.TargetPath, d.inner), 0o755); err != nil {
		return err
	}
	d.node.mount(e)
	return err
}

func (d *fakeDriver) Unpublish(ctx context.Context, req driver.UnpublishRequest) error {
	d.mu.Lock()
	d.unpublished = req
	d.mu.Unlock()
	err := d.enter(ctx, "unpublish", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.node.umount(req.TargetPath)
	if d.inner != "" {
		if err := os.Remove(filepath.Join(req.TargetPath, d.inner)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(req.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return err
}

func (d *fakeDriver) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	d.mu.Lock()
	d.unstaged = req
	d.mu.Unlock()
	err := d.enter(ctx, "unstage", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.node.umount(req.StagingPath)
	return err
}

func (d *fakeDriver) Expand(ctx context.Context, req driver.ExpandRequest) (resource.Quantity, error) {
	err := d.enter(ctx, "expand", req.Handle)
	if err != nil {
		return resource.Quantity{}, err
	}
	if _, ok := d.node.at(req.Path); !ok {
		return resource.Quantity{}, &driver.Error{Outcome: driver.NotFound, Code: "NotFound",
			Message: "the volume is not at " + req.Path}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expands = append(d.expands, req)
	d.capacity[req.Handle] = req.Capacity
	return req.Capacity, nil
}

func (d *fakeDriver) Stats(ctx context.Context, req driver.StatsRequest) (driver.Stats, error) {
	if err := d.enter(ctx, "stats", req.Handle); err != nil {
		return driver.Stats{}, err
	}
	if _, ok := d.node.at(req.Path); !ok {
		return driver.Stats{}, &driver.Error{
			Outcome: driver.NotFound,
			Code:    "NotFound",
			Message: "the volume is not published there",
		}
	}
	used, capacity := resource.MustParse("5Mi"), d.capacityOf(req.Handle)
	return driver.Stats{Used: &used, Capacity: &capacity}, nil
}

func (d *fakeDriver) VolumeHealth(ctx context.Context, req driver.StatsRequest) ([]volumesv1alpha1.HealthProblem,
	error) {
	if err := d.enter(ctx, "health", req.Handle); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problems, nil
}

func (d *fakeDriver) StorageHealth(ctx context.Context) ([]volumesv1alpha1.HealthProblem, error) {
	if err := d.enter(ctx, "storage health", ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.storage, nil
}

// reports has the driver report these problems of every volume.
func (d *fakeDriver) reports(problems ...volumesv1alpha1.HealthProblem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = problems
}

// reportsOfStorage has it report these problems of its storage.
func (d *fakeDriver) reportsOfStorage(problems ...volumesv1alpha1.HealthProblem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.storage = problems
}

// capacityOf is what the volume was expanded to, or what it has from the start.
func (d *fakeDriver) capacityOf(handle string) resource.Quantity {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.capacity[handle]; ok {
		return c
	}
	return resource.MustParse("1Gi")
}

var (
	_ driver.Driver      = (*fakeDriver)(nil)
	_ driver.Expander    = (*fakeDriver)(nil)
	_ driver.StatsReader = (*fakeDriver)(nil)
)

// fakeRegistry holds one driver, or none.
type fakeRegistry struct {
	mu      sync.Mutex
	driver  driver.Driver
	can     []string
	changes chan struct{}
}

func newFakeRegistry(d driver.Driver) *fakeRegistry {
	return &fakeRegistry{
		driver:  d,
		can:     []string{"STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", "GET_VOLUME_STATS"},
		changes: make(chan struct{}, 1),
	}
}

func (r *fakeRegistry) set(d driver.Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.driver = d
	r.changes <- struct{}{}
}

func (r *fakeRegistry) Get(name string) (driver.Driver, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.driver == nil || r.driver.Name() != name {
		return nil, false
	}
	return r.driver, true
}

func (r *fakeRegistry) Drivers() []volumesv1alpha1.NodeDriver {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.driver == nil {
		return nil
	}
	return []volumesv1alpha1.NodeDriver{{Name: r.driver.Name(), NodeID: "node", Capabilities: r.can}}
}

func (r *fakeRegistry) Changed() <-chan struct{} { return r.changes }
