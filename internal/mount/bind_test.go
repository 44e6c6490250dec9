/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func at(t *testing.T, m *Mounter, path string) Entry {
	t.Helper()
	table, err := m.Table()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(table.All(path)); n != 1 {
		t.Fatalf("%d mounts at %s", n, path)
	}
	entry, ok := table.At(path)
	if !ok {
		t.Fatalf("nothing to reach at %s", path)
	}
	return entry
}

// bindFixture is a Mounter, a directory with a file in it, and an empty target directory.
func bindFixture(t *testing.T) (m *Mounter, dir, source, target string) {
	t.Helper()
	needsRoot(t)
	dir = workspace(t)
	source, target = mkdir(t, dir, "source"), mkdir(t, dir, "target")
	write(t, filepath.Join(source, "file"), "content")
	return New(Options{}), dir, source, target
}

func TestARepeatedBindOfADirectoryMountsOnce(t *testing.T) {
	m, _, source, target := bindFixture(t)
	for range 3 {
		if err := m.Bind(t.Context(), source, target, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	at(t, m, target)
	write(t, filepath.Join(target, "file"), "changed")
	if got := read(t, filepath.Join(source, "file")); got != "changed" {
		t.Errorf("the source contains %q", got)
	}
}

func TestAReadOnlyBindLeavesItsSourceWritable(t *testing.T) {
	m, _, source, target := bindFixture(t)
	if err := m.Bind(t.Context(), source, target, true, []string{"rw"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing through the read-only bind: %v", err)
	}
	write(t, filepath.Join(source, "file"), "written")
}

func TestABindChangesOptionsInPlace(t *testing.T) {
	m, _, source, target := bindFixture(t)
	if err := m.Bind(t.Context(), source, target, true, []string{"noexec", "noatime"}); err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"ro", "noexec", "noatime"} {
		if e := at(t, m, target); !slices.Contains(e.Options, option) {
			t.Errorf("%s is missing in %v", option, e.Options)
		}
	}
	if err := m.Bind(t.Context(), source, target, false, []string{"rw", "exec"}); err != nil {
		t.Fatal(err)
	}
	if e := at(t, m, target); e.ReadOnly() || slices.Contains(e.Options, "noexec") {
		t.Errorf("options: %v", e.Options)
	}
	write(t, filepath.Join(target, "file"), "written")
}

func TestADeviceNodeIsBoundAtAFile(t *testing.T) {
	m, dir, _, _ := bindFixture(t)
	device := loopDevice(t, dir, 1<<20)
	target := filepath.Join(dir, "published", "device")
	if err := m.EnsureFile(t.Context(), target, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Bind(t.Context(), device, target, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	at(t, m, target)
	write(t, target, "to the device")
	if got := read(t, device)[:13]; got != "to the device" {
		t.Errorf("the device contains %q", got)
	}
	if err := m.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveMountPoint(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestABindDoesNotCoverAnotherMount(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	if err := m.Bind(t.Context(), mkdir(t, dir, "other"), target, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(t.Context(), source, target, true, nil); !errors.Is(err, ErrOccupied) {
		t.Errorf("error: %v", err)
	}
	if e := at(t, m, target); e.ReadOnly() {
		t.Error("another program's mount was changed")
	}
}

func TestATargetThatIsASymbolicLinkIsNotFollowed(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(t.Context(), source, link, false, nil); !errors.Is(err, ErrOccupied) {
		t.Errorf("error: %v", err)
	}
	if table, err := m.Table(); err != nil || len(table.Below(dir)) != 0 {
		t.Errorf("mounts below: %v, %v", table.Below(dir), err)
	}
}

func TestAnOptionOfAFilesystemIsRefusedWithoutItsValue(t *testing.T) {
	err := New(Options{}).Bind(t.Context(), "/a", "/b", false, []string{"noatime", "password=secret"})
	_, other := bindAttributes(false, []string{"data=journal"})
	if !errors.Is(err, ErrOption) || !errors.Is(other, ErrOption) {
		t.Errorf("errors: %v, %v", err, other)
	}
	if err.Error() != `binding at /b: mount option not supported: "password" cannot be set on a bind mount` {
		t.Errorf("message: %v", err)
	}
}

func TestMissingSourcesAndTargetsAreErrors(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	none := filepath.Join(dir, "none")
	if err := m.Bind(t.Context(), none, target, false, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no source: %v", err)
	}
	if err := m.Bind(t.Context(), source, none, false, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no target: %v", err)
	}
}

func TestUnmountSucceedsWhenNothingIsMounted(t *testing.T) {
	m := New(Options{})
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if err := m.Unmount(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAMountInUseIsOnlyUnmountedLazily(t *testing.T) {
	m, _, source, target := bindFixture(t)
	if err := m.Bind(t.Context(), source, target, false, nil); err != nil {
		t.Fatal(err)
	}
	user, err := os.Open(filepath.Join(target, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Unmount(t.Context(), target); !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmounting a mount in use: %v", err)
	}
	at(t, m, target)
	if err := m.UnmountLazily(t.Context(), target); err != nil {
		t.Error(err)
	}
	if err := user.Close(); err != nil {
		t.Error(err)
	}
	if err := m.RemoveMountPoint(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestUnmountRemovesOneMountAtATime(t *testing.T) {
	m, _, _, target := bindFixture(t)
	mountAt(t, "lower", target, "tmpfs")
	mountAt(t, "upper", target, "tmpfs")
	if err := m.Unmount(t.Context(), target); !errors.Is(err, ErrStillMounted) {
		t.Errorf("error: %v", err)
	}
	if e := at(t, m, target); e.Source != "lower" {
		t.Errorf("left is %s", e.Source)
	}
	if err := m.Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestABindOfAnOpenFileOutlivesItsPath(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	file, err := m.OpenBeneath(t.Context(), dir, "source")
	if err != nil {
		t.Fatal(err)
	}
	// Another program replaces the directory with a link meanwhile.
	if err := errors.Join(os.Rename(source, source+".moved"), os.Symlink("/etc", source)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.BindFile(t.Context(), file, target, true, nil), file.Close()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(target, "file")); got != "content" {
		t.Errorf("bound is a file with %q", got)
	}
}

func TestABindThatDidNotStartLeavesTheFileOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Options{}).BindFile(ctx, file, "/nowhere", false, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
