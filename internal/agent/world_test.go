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
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

// fakeNode is a node's kernel: a mount table in memory, over real directories. It outlives agents.
type fakeNode struct {
	mu      sync.Mutex
	entries []mount.Entry
	nextID  int
	changes chan struct{}
	// unsupported makes shutting down fail.
	unsupported bool
	shutdowns   []string
	group       map[string]int64
}

func newFakeNode() *fakeNode {
	return &fakeNode{nextID: 100, changes: make(chan struct{}, 1), group: map[string]int64{}}
}

var _ Mounts = (*fakeNode)(nil)

func (n *fakeNode) changed() {
	select {
	case n.changes <- struct{}{}:
	default:
	}
}

func (n *fakeNode) mount(e mount.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nextID++
	e.ID = n.nextID
	n.entries = append(n.entries, e)
	n.changed()
}

func (n *fakeNode) umount(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, e := range slices.Backward(n.entries) {
		if e.Path == path {
			n.entries = slices.Delete(n.entries, i, i+1)
			n.changed()
			return true
		}
	}
	return false
}

func (n *fakeNode) setUnsupported(u bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsupported = u
}

func (n *fakeNode) groupOf(root string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.group[root]
}

// reboot takes every mount away.
func (n *fakeNode) reboot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = nil
	n.changed()
}

func (n *fakeNode) mounted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var paths []string
	for _, e := range n.entries {
		paths = append(paths, e.Path)
	}
	return paths
}

func (n *fakeNode) at(path string) (mount.Entry, bool) {
	t, err := n.Table()
	if err != nil {
		panic(err)
	}
	return t.At(path)
}

func (n *fakeNode) Table() (*mount.Table, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return mount.NewTable(slices.Clone(n.entries)), nil
}

func (n *fakeNode) Busy(string) (mount.Call, bool) { return mount.Call{}, false }

func (n *fakeNode) Bind(_ context.Context, source, target string, readOnly bool, _ []string) error {
	e, ok := n.at(source)
	if !ok {
		return fmt.Errorf("nothing is mounted at %s", source)
	}
	if there, ok := n.at(target); ok {
		if there.SameSource(e) {
			return nil
		}
		return mount.ErrOccupied
	}
	if _, err := os.Lstat(target); err != nil {
		return err
	}
	e.Path = target
	if readOnly {
		e.Options = []string{"ro"}
	}
	n.mount(e)
	return nil
}

func (n *fakeNode) BindFile(ctx context.Context, source *os.File, target string, readOnly bool, options []string) error {
	root := filepath.Dir(source.Name())
	e, ok := n.at(root)
	if !ok {
		return fmt.Errorf("nothing is mounted at %s", root)
	}
	e.Root, e.Path = "/"+filepath.Base(source.Name()), target
	if there, ok := n.at(target); ok && !there.SameSource(e) {
		return mount.ErrOccupied
	} else if !ok {
		n.mount(e)
	}
	return nil
}

func (n *fakeNode) OpenBeneath(_ context.Context, root, subPath string) (*os.File, error) {
	return os.Open(filepath.Join(root, subPath))
}

func (n *fakeNode) Unmount(_ context.Context, path string) error {
	n.umount(path)
	return nil
}

func (n *fakeNode) EnsureDir(_ context.Context, path string, perm fs.FileMode) error {
	if _, ok := n.at(path); ok {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return mount.ErrOccupied
	}
	return os.MkdirAll(path, perm)
}

func (n *fakeNode) EnsureFile(_ context.Context, path string, perm fs.FileMode) error {
	if _, ok := n.at(path); ok {
		return nil
	}
	return os.WriteFile(path, nil, perm)
}

func (n *fakeNode) RemoveMountPoint(_ context.Context, path string) error {
	if _, ok := n.at(path); ok {
		return mount.ErrStillMounted
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", mount.ErrOccupied, err)
	}
	return nil
}

func (n *fakeNode) DeviceOf(_ context.Context, path string) (mount.Device, error) {
	e, ok := n.at(path)
	if !ok {
		return mount.Device{}, mount.ErrNotMounted
	}
	return mount.Device{Major: 7, Minor: uint32(e.Minor), Path: e.Source}, nil
}

func (n *fakeNode) ShutdownFilesystem(_ context.Context, path string, _ ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unsupported {
		return mount.ErrShutdownUnsupported
	}
	n.shutdowns = append(n.shutdowns, path)
	return nil
}

func (n *fakeNode) SetOwnership(_ context.Context, root string, fsGroup int64, _ corev1.PodFSGroupChangePolicy, _ func(int)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group[root] = fsGroup
	return nil
}

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
	fsType   string
	called   chan struct{}
	stages   map[string]driver.StageRequest
	publishs map[string]driver.PublishRequest
	capacity map[string]resource.Quantity
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
	return err
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

func device(handle string) string { return fmt.Sprintf("/dev/loop%d", minorOf(handle)) }

func (d *fakeDriver) Stage(ctx context.Context, req driver.StageRequest) error {
	err := d.enter(ctx, "stage", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.mu.Lock()
	d.stages[req.Handle] = req
	d.mu.Unlock()
	if _, ok := d.node.at(req.StagingPath); !ok && req.Mode != corev1.PersistentVolumeBlock {
		fsType := req.FSType
		if d.fsType != "" {
			fsType = d.fsType
		}
		d.node.mount(mount.Entry{Path: req.StagingPath, Root: "/", Major: 7, Minor: minorOf(req.Handle), FSType: fsType, Source: device(req.Handle)})
	}
	return err
}

func (d *fakeDriver) Publish(ctx context.Context, req driver.PublishRequest) error {
	err := d.enter(ctx, "publish", req.Handle)
	if err != nil && !d.after {
		return err
	}
	d.mu.Lock()
	d.publishs[req.TargetPath] = req
	d.mu.Unlock()
	if _, ok := d.node.at(req.TargetPath); ok {
		return err
	}
	e := mount.Entry{Path: req.TargetPath, Root: "/", Major: 7, Minor: minorOf(req.Handle), FSType: req.FSType, Source: device(req.Handle)}
	if req.ReadOnly {
		e.Options = []string{"ro"}
	}
	if req.Mode == corev1.PersistentVolumeBlock {
		e.Root, e.Major, e.FSType = "/loop", 0, "devtmpfs"
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
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity[req.Handle] = req.Capacity
	return req.Capacity, nil
}

func (d *fakeDriver) Stats(ctx context.Context, req driver.StatsRequest) (driver.Stats, error) {
	used := resource.MustParse("5Mi")
	return driver.Stats{Used: &used, Abnormal: true, Message: "scratched"}, d.enter(ctx, "stats", req.Handle)
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
	return &fakeRegistry{driver: d, can: []string{"STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", "GET_VOLUME_STATS"}, changes: make(chan struct{}, 1)}
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
