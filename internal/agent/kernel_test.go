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
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/agent/operation"
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
	// owning, if set, is what giving files to a group takes. It is set before an agent starts.
	owning func(ctx context.Context, root string, progress func(int)) error
	// nodes are the device nodes in each directory.
	nodes map[string][]string
	// held are the paths of mounts that a process uses.
	held map[string]bool
	// hanging are the places whose binds take until the channel is closed.
	hanging map[string]chan struct{}
	// noNodes makes none be made.
	noNodes bool
	// noDevices: no filesystem has a block device.
	noDevices bool
	// health of everything that is mounted, or only at sickAt, the error of an access to it, and the processes that use
	// it.
	health mount.Health
	sickAt string
	access error
	users  []mount.Holder
	// seq are the sequence numbers of devices by name; none at first, as before Linux 5.15.
	seq map[string]uint64
	// shift is added to every device number. A real kernel gives devices other numbers when it finds them again.
	shift int
}

func newFakeNode() *fakeNode {
	return &fakeNode{
		nextID:  100,
		entries: []mount.Entry{ownDisk},
		changes: make(chan struct{}, 1),
		group:   map[string]int64{},
		nodes:   map[string][]string{},
		held:    map[string]bool{},
		hanging: map[string]chan struct{}{},
		seq:     map[string]uint64{},
	}
}

// ownDisk holds every directory of the node.
var ownDisk = mount.Entry{ID: 1, Path: "/", Root: "/", Major: 259, Minor: 1, FSType: "ext4", Source: "/dev/nvme0n1p1"}

var _ operation.Mounts = (*fakeNode)(nil)

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

// shutDown counts the filesystems that were shut down.
func (n *fakeNode) shutDown() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.shutdowns)
}

func (n *fakeNode) groupOf(root string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.group[root]
}

// reboot takes every mount away, and every device comes back with another number.
func (n *fakeNode) reboot() {
	n.renumber()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = []mount.Entry{ownDisk}
	n.changed()
}

// renumber gives devices that are attached from now on other numbers.
func (n *fakeNode) renumber() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shift++
}

// bindOf is what a bind mount of the directory at source shows: what is mounted there, or a directory of the node's own
// disk.
func (n *fakeNode) bindOf(source, path string) mount.Entry {
	e, ok := n.shown(source)
	if !ok {
		panic("the node's own disk is everywhere")
	}
	e.Path = path
	return e
}

func (n *fakeNode) shown(path string) (mount.Entry, bool) {
	t, err := n.Table()
	if err != nil {
		panic(err)
	}
	return t.Shown(path)
}

// makeReadOnly what is mounted last at path.
func (n *fakeNode) makeReadOnly(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, e := range slices.Backward(n.entries) {
		if e.Path == path {
			n.entries[i].Options = []string{"ro"}
			return
		}
	}
}

// filesystemOf is the filesystem on the volume's device, mounted at path.
func (n *fakeNode) filesystemOf(handle, fsType, path string) mount.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	minor := minorOf(handle) + n.shift
	return mount.Entry{
		Path:   path,
		Root:   "/",
		Major:  7,
		Minor:  minor,
		FSType: fsType,
		Source: fmt.Sprintf("/dev/loop%d", minor),
	}
}

func (n *fakeNode) mounted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var paths []string
	for _, e := range n.entries[1:] { // without the node's own disk
		paths = append(paths, e.Path)
	}
	return paths
}

// referred are all device nodes.
func (n *fakeNode) referred() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var nodes []string
	for dir, names := range n.nodes {
		for _, name := range names {
			nodes = append(nodes, filepath.Join(dir, name))
		}
	}
	return nodes
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

func (n *fakeNode) TableWithin(time.Duration) (*mount.Table, error) { return n.Table() }

func (n *fakeNode) At(path string) (*mount.Table, mount.Entry, bool, error) {
	return lookUp(n.Table, path)
}

// lookUp returns what is mounted at path in a table that is read for that.
func lookUp(read func() (*mount.Table, error), path string) (*mount.Table, mount.Entry, bool, error) {
	table, err := read()
	if err != nil {
		return nil, mount.Entry{}, false, err
	}
	e, mounted := table.At(path)
	return table, e, mounted, nil
}

func (n *fakeNode) Busy(string) (mount.Call, bool) { return mount.Call{}, false }

func (n *fakeNode) Bind(ctx context.Context, source, target string, readOnly bool, _ []string) error {
	if _, err := os.Lstat(source); err != nil {
		return err
	}
	return n.bind(ctx, n.bindOf(source, target), readOnly)
}

// bind mounts the entry, unless it is mounted there already.
func (n *fakeNode) bind(ctx context.Context, e mount.Entry, readOnly bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(e.Path); err != nil {
		return err
	}
	if there, ok := n.at(e.Path); !ok {
		n.mount(e)
	} else if !there.SameSource(e) {
		return mount.ErrOccupied
	}
	if readOnly {
		n.makeReadOnly(e.Path)
	}
	return nil
}

func (n *fakeNode) BindFile(ctx context.Context, source *os.File, target string, readOnly bool, _ []string) error {
	return n.bind(ctx, n.bindOf(source.Name(), target), readOnly)
}

func (n *fakeNode) OpenMount(_ context.Context, path string) (*os.File, error) {
	if _, mounted := n.at(path); !mounted {
		return nil, mount.ErrNotMounted
	}
	return os.Open(path)
}

func (n *fakeNode) Shows(_ context.Context, path, root, subPath string) (bool, error) {
	there, mounted := n.at(path)
	part, ok := n.shown(filepath.Join(root, subPath))
	return mounted && ok && there.SameSource(part), nil
}

func (n *fakeNode) OpenBeneath(_ context.Context, root, subPath string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(root, subPath), unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		err = fmt.Errorf("%w: %w", mount.ErrSubPath, err)
	}
	return file, err
}

func (n *fakeNode) Unmount(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, mounted := n.at(path)
	table, err := n.Table()
	if err != nil || mounted && len(table.Below(path)) > 0 {
		return errors.Join(err, unix.EBUSY)
	}
	n.umount(path)
	if mounted && e.IsDirectory() { // the filesystem with the places is gone
		places, err := filepath.Glob(path + "/*")
		for _, place := range places {
			err = errors.Join(err, os.Remove(place))
		}
		return err
	}
	if _, still := n.at(path); still {
		return mount.ErrStillMounted
	}
	return nil
}

func (n *fakeNode) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := n.at(path); ok {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return mount.ErrOccupied
	}
	return os.MkdirAll(path, perm)
}

func (n *fakeNode) MakeDirectory(ctx context.Context, path, label string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e, ok := n.at(path); ok {
		if e.IsDirectory() {
			return nil
		}
		return mount.ErrOccupied
	}
	e := mount.Entry{Path: path, Root: "/", Minor: 90, FSType: "tmpfs", Source: "volumes.hawser.io",
		Options: []string{"ro"}}
	if label != "" {
		e.SuperOptions = []string{"context=" + label}
	}
	n.mount(e)
	return nil
}

func (n *fakeNode) MakePlace(_ context.Context, dir, place string) error {
	return os.MkdirAll(filepath.Join(dir, place), 0o755)
}

func (n *fakeNode) BindAlone(ctx context.Context, source *os.File, target string, readOnly bool) error {
	n.mu.Lock()
	hanging := n.hanging[target]
	n.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	return n.BindFile(ctx, source, target, readOnly, nil)
}

func (n *fakeNode) ClearPlace(ctx context.Context, place mount.Place) error {
	path := filepath.Join(place.Directory, place.Name)
	n.mu.Lock()
	held := n.held[path]
	n.mu.Unlock()
	if _, mounted := n.at(path); mounted && place.Bare {
		return mount.ErrStillMounted
	}
	if held {
		return &mount.HeldError{Device: mount.Device{Path: path}, Holders: []mount.Holder{{PID: 1, Command: "db",
			Use: "has " + path + " open"}}}
	}
	if err := n.Unmount(ctx, path); err != nil {
		return err
	}
	return n.RemoveMountPoint(ctx, path)
}

// hang has a bind at the place take until it is released.
func (n *fakeNode) hang(path string) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hanging := make(chan struct{})
	n.hanging[path] = hanging
	return func() { close(hanging) }
}

// hold keeps what is mounted at the path from being taken away.
func (n *fakeNode) hold(path string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[path] = held
}

func (n *fakeNode) DeviceNodes(dir string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[dir], nil
}

func (n *fakeNode) SetDeviceNodes(_ context.Context, dir string, names []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noNodes && len(names) > 0 {
		return unix.EPERM
	}
	n.nodes[dir] = slices.Sorted(slices.Values(names))
	return nil
}

func (n *fakeNode) EnsureFile(ctx context.Context, path string, perm fs.FileMode) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := n.at(path); ok {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return mount.ErrOccupied
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, nil, perm)
}

func (n *fakeNode) RemoveMountPoint(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := n.at(path); ok {
		return mount.ErrStillMounted
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return mount.ErrOccupied
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
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deviceOf(e), nil
}

func (n *fakeNode) deviceOf(e mount.Entry) mount.Device {
	d := mount.Device{Major: uint32(e.Major), Minor: uint32(e.Minor), Path: e.Source, Seq: n.seq[e.Source]}
	if e.FSType == "devtmpfs" { // what is mounted is a device node, of a loop device
		d.Major, d.Node = 7, true
	}
	return d
}

// reuse has a device's number go to the disk with that sequence number.
func (n *fakeNode) reuse(device string, seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq[device] = seq
}

func (n *fakeNode) DeviceNode(ctx context.Context, path string) (mount.Device, error) {
	return n.DeviceOf(ctx, path)
}

func (n *fakeNode) DeviceUnder(e mount.Entry) (mount.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noDevices {
		return mount.Device{}, nil
	}
	return mount.Device{Major: uint32(e.Major), Minor: uint32(e.Minor), Path: e.Source}, nil
}

// ReadOnly is true, as with a driver that sees to it by itself.
func (n *fakeNode) ReadOnly(context.Context, mount.Device) (bool, error) { return true, nil }

func (n *fakeNode) SetReadOnly(context.Context, mount.Device, bool) error { return nil }

func (n *fakeNode) Examine(_ context.Context, path string) (mount.Health, error) {
	e, mounted := n.at(path)
	if !mounted {
		return mount.Health{}, mount.ErrNotMounted
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sickAt != "" && n.sickAt != path {
		return mount.Health{}, nil
	}
	health := n.health
	if e.FSType == "devtmpfs" {
		health.Node = n.deviceOf(e)
	}
	return health, n.access
}

func (n *fakeNode) Users(context.Context, string) ([]mount.Holder, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.users, nil
}

func (n *fakeNode) CheckFree(context.Context, mount.Device, bool) error { return nil }

func (n *fakeNode) CheckReadable(context.Context, mount.Device) error { return nil }

func (n *fakeNode) ShutdownFilesystem(_ context.Context, path string, still func() error, _ ...string) error {
	if err := still(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unsupported {
		return mount.ErrShutdownUnsupported
	}
	n.shutdowns = append(n.shutdowns, path)
	return nil
}

func (n *fakeNode) SetOwnership(ctx context.Context, root string, fsGroup int64, _ corev1.PodFSGroupChangePolicy,
	progress func(int)) error {
	if n.owning != nil {
		if err := n.owning(ctx, root, progress); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group[root] = fsGroup
	return nil
}
