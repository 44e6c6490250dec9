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
		t.Fatalf("%d mounts at %s, want 1", n, path)
	}
	entry, ok := table.At(path)
	if !ok {
		t.Fatalf("no mount at %s can be reached, want one", path)
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
		t.Errorf("file of source %s: content %q, want %q", source, got, "changed")
	}
}

func TestAReadOnlyBindLeavesItsSourceWritable(t *testing.T) {
	m, _, source, target := bindFixture(t)
	if err := m.Bind(t.Context(), source, target, true, []string{"rw"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing through the read-only bind mount at %s: error %v, want %v", target, err, unix.EROFS)
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
			t.Errorf("mount options at %s: %v, want %s among them", target, e.Options, option)
		}
	}
	if err := m.Bind(t.Context(), source, target, false, []string{"rw", "exec"}); err != nil {
		t.Fatal(err)
	}
	if e := at(t, m, target); e.ReadOnly() || slices.Contains(e.Options, "noexec") {
		t.Errorf("mount options at %s: %v, want neither ro nor noexec", target, e.Options)
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
		t.Errorf("device %s starts with %q, want what was written through %s", device, got, target)
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
		t.Errorf("binding over another mount at %s: error %v, want %v", target, err, ErrOccupied)
	}
	if e := at(t, m, target); e.ReadOnly() {
		t.Errorf("mount options at %s: %v; want another program's mount unchanged", target, e.Options)
	}
}

func TestATargetThatIsASymbolicLinkIsNotFollowed(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(t.Context(), source, link, false, nil); !errors.Is(err, ErrOccupied) {
		t.Errorf("binding at symbolic link %s: error %v, want %v", link, err, ErrOccupied)
	}
	if table, err := m.Table(); err != nil || len(table.Below(dir)) != 0 {
		t.Errorf("mounts below %s: %v, error %v; want none", dir, table.Below(dir), err)
	}
}

func TestAnOptionOfAFilesystemIsRefusedWithoutItsValue(t *testing.T) {
	err := New(Options{}).Bind(t.Context(), "/a", "/b", false, []string{"noatime", "password=secret"})
	_, other := bindAttributes(false, []string{"data=journal"})
	if !errors.Is(err, ErrOption) || !errors.Is(other, ErrOption) {
		t.Errorf("options password and data=journal: errors %v and %v, want %v for both", err, other, ErrOption)
	}
	if err.Error() != `binding at /b: mount option not supported: "password" cannot be set on a bind mount` {
		t.Errorf("message for option password: %q, want its name and not its value", err)
	}
}

func TestMissingSourcesAndTargetsAreErrors(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	none := filepath.Join(dir, "none")
	if err := m.Bind(t.Context(), none, target, false, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("binding from absent source %s: error %v, want %v", none, err, os.ErrNotExist)
	}
	if err := m.Bind(t.Context(), source, none, false, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("binding at absent target %s: error %v, want %v", none, err, os.ErrNotExist)
	}
}

func TestUnmountSucceedsWhenNothingIsMounted(t *testing.T) {
	m := New(Options{})
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if err := m.Unmount(t.Context(), path); err != nil {
			t.Errorf("unmounting %s, where nothing is mounted: error %v, want none", path, err)
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
		t.Errorf("unmounting %s, which is in use: error %v, want %v", target, err, unix.EBUSY)
	}
	at(t, m, target)
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
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
		t.Errorf("unmounting one of two mounts at %s: error %v, want %v", target, err, ErrStillMounted)
	}
	if e := at(t, m, target); e.Source != "lower" {
		t.Errorf("mounted at %s after one unmount: %s, want lower", target, e.Source)
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
		t.Errorf("file of the bind mount at %s: content %q, want %q of the open directory", target, got, "content")
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
		t.Errorf("binding with an ended context: error %v, want %v", err, context.Canceled)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
