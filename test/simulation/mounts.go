/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/agent"
	"github.com/hawser-io/hawser/internal/mount"
)

// kernel is the machine's kernel as one agent sees it.
type kernel struct {
	m *machine
	p *process
}

var _ agent.Mounts = kernel{}

// enter the kernel with the world locked; leave it by unlocking that.
func (k kernel) enter(ctx context.Context, what string) error {
	if err := k.p.pass(ctx, what); err != nil {
		return err
	}
	k.m.world.mu.Lock()
	if k.p.isDead() {
		k.m.world.mu.Unlock()
		return k.p.hang()
	}
	return nil
}

func (k kernel) leave() { k.m.world.mu.Unlock() }

func (k kernel) Table() (*mount.Table, error) {
	if k.p.happens(tableFails) {
		return nil, errors.New("reading the mount table: interrupted")
	}
	if err := k.enter(context.Background(), "reading the mount table"); err != nil {
		return nil, err
	}
	defer k.leave()
	entries := make([]mount.Entry, 0, len(k.m.mounts))
	for _, e := range k.m.mounts {
		entries = append(entries, e.Entry)
	}
	return mount.NewTable(entries), nil
}

func (k kernel) TableWithin(time.Duration) (*mount.Table, error) { return k.Table() }

func (k kernel) At(path string) (*mount.Table, mount.Entry, bool, error) {
	table, err := k.Table()
	if err != nil {
		return nil, mount.Entry{}, false, err
	}
	e, mounted := table.At(path)
	return table, e, mounted, nil
}

func (k kernel) Busy(string) (mount.Call, bool) { return mount.Call{}, false }

func (k kernel) Bind(ctx context.Context, source, target string, readOnly bool, _ []string) error {
	if err := k.enter(ctx, "binding"); err != nil {
		return err
	}
	defer k.leave()
	e, ok := k.m.at(source)
	if !ok {
		if _, err := os.Lstat(source); err != nil {
			return err
		}
		e = mounted{Entry: ownDisk}
		e.Root = source
	}
	if _, err := os.Lstat(target); err != nil {
		return err
	}
	there, ok := k.m.at(target)
	switch {
	case !ok:
		e.Path = target
		k.m.mount(e)
	case !there.SameSource(e.Entry):
		return mount.ErrOccupied
	}
	if readOnly {
		k.m.makeReadOnly(target)
	}
	return nil
}

// BindFile binds what was opened, if it is still mounted.
func (k kernel) BindFile(ctx context.Context, source *os.File, target string, readOnly bool, _ []string) error {
	if err := k.enter(ctx, "binding an open mount"); err != nil {
		return err
	}
	defer k.leave()
	e := k.m.opened[source]
	delete(k.m.opened, source)
	if !slices.ContainsFunc(k.m.mounts, func(o mounted) bool { return o.ID == e.ID }) {
		return errors.New("what is open is not mounted any more")
	}
	if _, err := os.Lstat(target); err != nil {
		return err
	}
	if there, ok := k.m.at(target); ok && !there.SameSource(e.Entry) {
		return mount.ErrOccupied
	} else if !ok {
		e.Path = target
		k.m.mount(e)
	}
	if readOnly {
		k.m.makeReadOnly(target)
	}
	return nil
}

func (k kernel) OpenMount(ctx context.Context, path string) (*os.File, error) {
	if err := k.enter(ctx, "opening a mount"); err != nil {
		return nil, err
	}
	defer k.leave()
	e, ok := k.m.at(path)
	if !ok {
		return nil, mount.ErrNotMounted
	}
	file, err := os.Open(path)
	if err == nil {
		k.m.opened[file] = e
	}
	return file, err
}

// Shows compares without taking time.
func (k kernel) Shows(_ context.Context, path, root, subPath string) (bool, error) {
	k.m.world.mu.Lock()
	defer k.m.world.mu.Unlock()
	there, mounted := k.m.at(path)
	part, ok := k.m.at(root)
	part.Root = filepath.Join(part.Root, subPath)
	return mounted && ok && there.SameSource(part.Entry), nil
}

// OpenBeneath opens a directory that every volume has.
func (k kernel) OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error) {
	file, err := k.OpenMount(ctx, root)
	if err != nil {
		return nil, err
	}
	k.m.world.mu.Lock()
	defer k.m.world.mu.Unlock()
	e := k.m.opened[file]
	e.Root = filepath.Join(e.Root, subPath)
	k.m.opened[file] = e
	return file, nil
}

func (k kernel) Unmount(ctx context.Context, path string) error {
	if err := k.enter(ctx, "unmounting"); err != nil {
		return err
	}
	defer k.leave()
	if e, ok := k.m.umount(path); ok {
		k.m.world.logLocked("%s unmounts %s", k.p.name, e.describe())
	}
	if _, still := k.m.at(path); still {
		return mount.ErrStillMounted
	}
	return nil
}

func (k kernel) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	if err := k.enter(ctx, "making a directory"); err != nil {
		return err
	}
	defer k.leave()
	if _, ok := k.m.at(path); ok {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return mount.ErrOccupied
	}
	return os.MkdirAll(path, perm)
}

func (k kernel) EnsureFile(ctx context.Context, path string, perm fs.FileMode) error {
	if err := k.enter(ctx, "making a file"); err != nil {
		return err
	}
	defer k.leave()
	if info, err := os.Lstat(path); err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return mount.ErrOccupied
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, nil, perm)
}

func (k kernel) RemoveMountPoint(ctx context.Context, path string) error {
	if err := k.enter(ctx, "removing a directory"); err != nil {
		return err
	}
	defer k.leave()
	if _, ok := k.m.at(path); ok {
		return mount.ErrStillMounted
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return mount.ErrOccupied
	}
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", mount.ErrOccupied, err)
	}
	return nil
}

// No pod of the simulation has a directory.

func (k kernel) MakeDirectory(context.Context, string, string) error { return errors.ErrUnsupported }

func (k kernel) MakePlace(context.Context, string, string) error { return errors.ErrUnsupported }

func (k kernel) BindAlone(context.Context, *os.File, string, bool) error {
	return errors.ErrUnsupported
}

func (k kernel) ClearPlace(context.Context, mount.Place) error { return errors.ErrUnsupported }

// DeviceNodes are files here. Asking for them takes no time.
func (k kernel) DeviceNodes(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

func (k kernel) SetDeviceNodes(ctx context.Context, dir string, names []string) error {
	if err := k.enter(ctx, "making device nodes"); err != nil {
		return err
	}
	defer k.leave()
	present, err := k.DeviceNodes(dir)
	for _, name := range present {
		if !slices.Contains(names, name) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
	}
	for _, name := range names {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	return err
}

func (k kernel) DeviceOf(ctx context.Context, path string) (mount.Device, error) {
	if err := k.enter(ctx, "looking for a device"); err != nil {
		return mount.Device{}, err
	}
	defer k.leave()
	e, ok := k.m.at(path)
	if !ok {
		return mount.Device{}, mount.ErrNotMounted
	}
	return e.device(), nil
}

// device tells as the kernel does: the number may come again, the sequence number does not.
func (e mounted) device() mount.Device {
	major, minor := uint32(e.Major), uint32(e.Minor) //nolint:gosec // they are small
	d := mount.Device{Major: major, Minor: minor, Path: e.Source, Seq: e.seq}
	if e.FSType == deviceNodes {
		d.Major, d.Node = loopMajor, true
	}
	return d
}

func (k kernel) DeviceNode(ctx context.Context, path string) (mount.Device, error) {
	return k.DeviceOf(ctx, path)
}

func (k kernel) DeviceUnder(e mount.Entry) (mount.Device, error) {
	if err := k.enter(context.Background(), "looking for the device under a mount"); err != nil {
		return mount.Device{}, err
	}
	defer k.leave()
	for _, m := range k.m.mounts {
		if m.ID == e.ID {
			return m.device(), nil
		}
	}
	return mount.Device{}, mount.ErrNotMounted
}

// CheckReadable succeeds: no disk of this world fails.
func (k kernel) CheckReadable(ctx context.Context, _ mount.Device) error {
	if err := k.enter(ctx, "reading a device"); err != nil {
		return err
	}
	k.leave()
	return nil
}

func (k kernel) CheckFree(ctx context.Context, d mount.Device, _ bool) error {
	if err := k.enter(ctx, "asking whether a device is free"); err != nil {
		return err
	}
	defer k.leave()
	used := slices.ContainsFunc(k.m.mounts, func(e mounted) bool { return e.seq == d.Seq })
	if used || time.Now().Before(k.m.held[d.Seq]) {
		return &mount.HeldError{Device: d}
	}
	return nil
}

// Examine finds that a filesystem has fallen sick. It works again once all its mounts are gone. It takes no time, so
// that stories without such filesystems go on as they would without it.
func (k kernel) Examine(_ context.Context, path string) (mount.Health, error) {
	k.m.world.mu.Lock()
	defer k.m.world.mu.Unlock()
	switch e, ok := k.m.at(path); {
	case !ok:
		return mount.Health{}, mount.ErrNotMounted
	case !e.sick.IsZero() && !k.m.world.chance.ceased():
		return mount.Health{Failed: "emergency_ro"}, nil
	}
	return mount.Health{}, nil
}

func (k kernel) Users(context.Context, string) ([]mount.Holder, error) { return nil, nil }

func (k kernel) ReadOnly(context.Context, mount.Device) (bool, error) { return true, nil }

func (k kernel) SetReadOnly(context.Context, mount.Device, bool) error { return nil }

func (k kernel) ShutdownFilesystem(ctx context.Context, path string, still func() error, _ ...string) error {
	if err := still(); err != nil {
		return err
	}
	if err := k.enter(ctx, "shutting a filesystem down"); err != nil {
		return err
	}
	defer k.leave()
	e, ok := k.m.at(path)
	if !ok {
		return mount.ErrNotMounted
	}
	k.m.world.logLocked("%s shuts down %s", k.p.name, e.describe())
	k.m.world.shutDown(k.m, e)
	return nil
}

// SetOwnership gives the files of a volume to a group, one after the other.
func (k kernel) SetOwnership(ctx context.Context, root string, group int64, _ corev1.PodFSGroupChangePolicy,
	progress func(int)) error {
	for files := range 2 {
		if err := k.enter(ctx, "giving a file to a group"); err != nil {
			return err
		}
		e, ok := k.m.at(root)
		if ok && files > 0 {
			k.m.world.groups[e.handle] = group
		}
		k.leave()
		if !ok {
			return mount.ErrNotMounted
		}
		progress(files)
	}
	return nil
}
