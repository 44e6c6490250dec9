/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package mounttest is the conformance suite of mount.Mounter. The tests of the Mounter and of each of its
// fakes run it.
package mounttest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hawser-io/hawser/internal/mount"
)

// Mounts is the tested interface.
type Mounts interface {
	Table() (*mount.Table, error)
	Bind(ctx context.Context, source, target string, readOnly bool, options []string) error
	Unmount(ctx context.Context, path string) error
	EnsureDir(ctx context.Context, path string, perm fs.FileMode) error
	EnsureFile(ctx context.Context, path string, perm fs.FileMode) error
	RemoveMountPoint(ctx context.Context, path string) error
	DeviceOf(ctx context.Context, path string) (mount.Device, error)
}

// Host is the environment of one test.
type Host struct {
	Mounts Mounts
	// Dir is a directory for this test, on a filesystem that is mounted elsewhere.
	Dir string
	// Mount mounts another filesystem with each call, over whatever is at path.
	Mount func(path string)
}

// Cases are the tests by name. Each test needs its own host.
var Cases = map[string]func(*testing.T, Host){
	"EnsureDir creates a directory and its parents once":       directory,
	"EnsureFile creates an empty file once":                    file,
	"a file or directory with contents is not a mount point":   occupied,
	"a mount point is removed when nothing is mounted there":   removal,
	"a repeated bind shows its source once":                    bind,
	"a bind of a directory shows the disk that it is on":       bindDirectory,
	"a bind does not cover another mount":                      bindOver,
	"a bind fails without its source or target":                bindNothing,
	"a bind becomes read-only, and stays so":                   readOnly,
	"an unmount removes the top-most mount and reports others": unmount,
	"a path without a mount has no device":                     noDevice,
	"a table does not change":                                  table,
	"a call with an ended context does nothing":                ended,
}

func directory(t *testing.T, h Host) {
	path := filepath.Join(h.Dir, "a", "b")
	for range 2 {
		must(t, h.Mounts.EnsureDir(t.Context(), path, 0o700))
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("directory %s: %v, error %v; want a directory", path, info, err)
	}
	h.Mount(path)
	must(t, h.Mounts.EnsureDir(t.Context(), path, 0o700))
	mounted(t, h, path, 1)
}

func file(t *testing.T, h Host) {
	path := filepath.Join(h.Dir, "a", "file")
	for range 2 {
		must(t, h.Mounts.EnsureFile(t.Context(), path, 0o600))
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("file %s: %v, error %v; want a regular file", path, info, err)
	}
}

func occupied(t *testing.T, h Host) {
	full := filepath.Join(h.Dir, "full")
	must(t, os.WriteFile(full, []byte("data"), 0o600))
	is(t, h.Mounts.EnsureDir(t.Context(), full, 0o700), mount.ErrOccupied)
	is(t, h.Mounts.EnsureFile(t.Context(), full, 0o600), mount.ErrOccupied)
	is(t, h.Mounts.EnsureFile(t.Context(), h.Dir, 0o600), mount.ErrOccupied)
	is(t, h.Mounts.RemoveMountPoint(t.Context(), full), mount.ErrOccupied)
	is(t, h.Mounts.RemoveMountPoint(t.Context(), h.Dir), mount.ErrOccupied)
	if data, err := os.ReadFile(full); err != nil || string(data) != "data" {
		t.Errorf("file %s: content %q, error %v; want %q unchanged", full, data, err, "data")
	}
}

func removal(t *testing.T, h Host) {
	path := mkdir(t, h, "point")
	h.Mount(path)
	is(t, h.Mounts.RemoveMountPoint(t.Context(), path), mount.ErrStillMounted)
	mounted(t, h, path, 1)
	must(t, h.Mounts.Unmount(t.Context(), path))
	for range 2 {
		must(t, h.Mounts.RemoveMountPoint(t.Context(), path))
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("mount point %s after its removal: error %v, want %v", path, err, fs.ErrNotExist)
	}
}

func bind(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), mkdir(t, h, "target")
	h.Mount(source)
	for range 2 {
		must(t, h.Mounts.Bind(t.Context(), source, target, false, nil))
	}
	if s, e := mounted(t, h, source, 1), mounted(t, h, target, 1); !e.SameSource(s) || e.ID == s.ID {
		t.Errorf("bind mount of %s: %+v, want another mount of the same source as %+v", source, e, s)
	}
	must(t, h.Mounts.Unmount(t.Context(), source))
	mounted(t, h, target, 1)
}

func bindDirectory(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), mkdir(t, h, "target")
	disk, ok := read(t, h).Shown(h.Dir)
	if !ok {
		t.Fatalf("no mount shows the test's directory %s, want one", h.Dir)
	}
	must(t, h.Mounts.Bind(t.Context(), source, target, false, nil))
	e := mounted(t, h, target, 1)
	if e.Major != disk.Major || e.Minor != disk.Minor || filepath.Base(e.Root) != "source" {
		t.Errorf("bind mount of directory %s: %+v, want root .../source on the filesystem of %+v", source, e, disk)
	}
}

func bindOver(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), mkdir(t, h, "target")
	h.Mount(source)
	h.Mount(target)
	before := mounted(t, h, target, 1)
	is(t, h.Mounts.Bind(t.Context(), source, target, false, nil), mount.ErrOccupied)
	if after := mounted(t, h, target, 1); after.ID != before.ID {
		t.Errorf("mount at %s after a refused bind: %+v, want it unchanged: %+v", target, after, before)
	}
}

func bindNothing(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), filepath.Join(h.Dir, "absent")
	is(t, h.Mounts.Bind(t.Context(), source, target, false, nil), fs.ErrNotExist)
	is(t, h.Mounts.Bind(t.Context(), target, source, false, nil), fs.ErrNotExist)
	mounted(t, h, source, 0)
	mounted(t, h, target, 0)
}

func readOnly(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), mkdir(t, h, "target")
	h.Mount(source)
	for _, step := range []struct{ asked, is bool }{{false, false}, {true, true}, {false, true}} {
		must(t, h.Mounts.Bind(t.Context(), source, target, step.asked, nil))
		if e := mounted(t, h, target, 1); e.ReadOnly() != step.is {
			t.Errorf("options of %s, bound with read-only %t: %v, want read-only %t", target, step.asked, e.Options, step.is)
		}
	}
	if e := mounted(t, h, source, 1); e.ReadOnly() {
		t.Errorf("options of source %s: %v, want writable", source, e.Options)
	}
}

func unmount(t *testing.T, h Host) {
	path := mkdir(t, h, "point")
	must(t, h.Mounts.Unmount(t.Context(), path))
	must(t, h.Mounts.Unmount(t.Context(), filepath.Join(h.Dir, "absent")))
	h.Mount(path)
	lower := mounted(t, h, path, 1)
	h.Mount(path)
	if e := mounted(t, h, path, 2); e.ID == lower.ID {
		t.Errorf("topmost of two mounts at %s: %+v, want the second one", path, e)
	}
	is(t, h.Mounts.Unmount(t.Context(), path), mount.ErrStillMounted)
	if e := mounted(t, h, path, 1); e.ID != lower.ID {
		t.Errorf("mount at %s after one unmount: %+v, want the first one: %+v", path, e, lower)
	}
	must(t, h.Mounts.Unmount(t.Context(), path))
	mounted(t, h, path, 0)
}

func noDevice(t *testing.T, h Host) {
	path := mkdir(t, h, "point")
	_, err := h.Mounts.DeviceOf(t.Context(), path)
	is(t, err, mount.ErrNotMounted)
	h.Mount(path)
	d, err := h.Mounts.DeviceOf(t.Context(), path)
	must(t, err)
	e := mounted(t, h, path, 1)
	if int(d.Major) != e.Major || int(d.Minor) != e.Minor {
		t.Errorf("device of %s: %+v, want the number of mount %+v", path, d, e)
	}
}

func table(t *testing.T, h Host) {
	path := mkdir(t, h, "point")
	before := read(t, h)
	h.Mount(path)
	during := read(t, h)
	must(t, h.Mounts.Unmount(t.Context(), path))
	if len(before.All(path)) != 0 || len(during.All(path)) != 1 {
		t.Errorf("mounts at %s: %v in the table read before, %v in the one read during the mount; want 0 and 1", path,
			before.All(path), during.All(path))
	}
}

func ended(t *testing.T, h Host) {
	source, target := mkdir(t, h, "source"), mkdir(t, h, "target")
	h.Mount(source)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, h.Mounts.Bind(ctx, source, target, false, nil), context.Canceled)
	mounted(t, h, target, 0)
	is(t, h.Mounts.Unmount(ctx, source), context.Canceled)
	mounted(t, h, source, 1)
	must(t, h.Mounts.Bind(t.Context(), source, target, false, nil))
}

func mkdir(t *testing.T, h Host, name string) string {
	t.Helper()
	path := filepath.Join(h.Dir, name)
	must(t, os.Mkdir(path, 0o700))
	return path
}

func read(t *testing.T, h Host) *mount.Table {
	t.Helper()
	table, err := h.Mounts.Table()
	must(t, err)
	return table
}

// mounted checks the number of mounts at path, and returns the top-most one.
func mounted(t *testing.T, h Host, path string, want int) mount.Entry {
	t.Helper()
	table := read(t, h)
	if got := table.All(path); len(got) != want {
		t.Fatalf("%d mounts at %s, want %d: %v", len(got), path, want, got)
	}
	e, _ := table.At(path)
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("call on the host's mounts: error %v, want %v", err, want)
	}
}
