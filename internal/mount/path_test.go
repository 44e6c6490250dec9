/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEnsureDirCreatesOnlyDirectories(t *testing.T) {
	m, dir := New(Options{}), t.TempDir()
	fresh := filepath.Join(dir, "a", "b")
	for range 2 {
		if err := m.EnsureDir(t.Context(), fresh, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode() != fs.ModeDir|0o750 {
		t.Errorf("created %s: %v, error %v; want a directory with mode 0750", fresh, info, err)
	}
	for name, path := range foreign(t, dir) {
		if name == "directory" {
			continue
		}
		if err := m.EnsureDir(t.Context(), path, 0o750); !errors.Is(err, ErrOccupied) {
			t.Errorf("EnsureDir at a %s: error %v, want %v", name, err, ErrOccupied)
		}
	}
}

func TestEnsureFileCreatesOnlyEmptyFiles(t *testing.T) {
	m, dir := New(Options{}), t.TempDir()
	fresh := filepath.Join(dir, "a", "b")
	for range 2 {
		if err := m.EnsureFile(t.Context(), fresh, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range foreign(t, dir) {
		if err := m.EnsureFile(t.Context(), path, 0o600); !errors.Is(err, ErrOccupied) {
			t.Errorf("EnsureFile at a %s: error %v, want %v", name, err, ErrOccupied)
		}
	}
}

// foreign are files that another program may have put at a mount point.
func foreign(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths := map[string]string{}
	for _, name := range []string{"file", "directory", "link to file", "link to directory", "fifo"} {
		paths[name] = filepath.Join(dir, name)
	}
	write(t, paths["file"], "somebody's")
	mkdir(t, paths["directory"])
	write(t, filepath.Join(paths["directory"], "inside"), "somebody's")
	err := errors.Join(
		os.Symlink(paths["file"], paths["link to file"]),
		os.Symlink(paths["directory"], paths["link to directory"]),
		unix.Mkfifo(paths["fifo"], 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestOnlyEmptyMountPointsAreRemoved(t *testing.T) {
	m, dir := New(Options{}), t.TempDir()
	for name, path := range foreign(t, dir) {
		if err := m.RemoveMountPoint(t.Context(), path); !errors.Is(err, ErrOccupied) {
			t.Errorf("removing a %s as a mount point: error %v, want %v", name, err, ErrOccupied)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s after its refused removal: error %v, want it there", name, err)
		}
	}
	empty := []string{mkdir(t, dir, "empty"), write(t, filepath.Join(dir, "empty file"), ""), filepath.Join(dir, "none")}
	for _, path := range empty {
		if err := m.RemoveMountPoint(t.Context(), path); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after its removal: error %v, want %v", path, err, fs.ErrNotExist)
		}
	}
}

func TestAMountPointIsNotRemovedWhileMounted(t *testing.T) {
	needsRoot(t)
	m, target := New(Options{}), mkdir(t, workspace(t), "target")
	mountAt(t, "tmpfs", target, "tmpfs")
	if err := m.RemoveMountPoint(t.Context(), target); !errors.Is(err, ErrStillMounted) {
		t.Errorf("removing mount point %s, which is mounted: error %v, want %v", target, err, ErrStillMounted)
	}
	if err := m.EnsureFile(t.Context(), target, 0o600); err != nil {
		t.Errorf("EnsureFile at %s, which is mounted: error %v, want none", target, err)
	}
}

func TestASubPathStaysBeneathItsRoot(t *testing.T) {
	m, dir := New(Options{}), t.TempDir()
	root := mkdir(t, dir, "root")
	mkdir(t, root, "a", "b")
	write(t, filepath.Join(root, "file"), "content")
	err := errors.Join(
		os.Symlink("/etc", filepath.Join(root, "absolute")),
		os.Symlink("../..", filepath.Join(root, "a", "climbing")),
		os.Symlink("a", filepath.Join(root, "inside")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, subPath := range []string{"", "/etc", "..", "a/../..", "a/..", "absolute", "absolute/hosts", "a/climbing",
		"inside", "inside/b", "file", "file/x", "a\x00b"} {
		if file, err := m.OpenBeneath(t.Context(), root, subPath); !errors.Is(err, ErrSubPath) {
			t.Errorf("opening subpath %q: file %v, error %v; want %v", subPath, file, err, ErrSubPath)
		}
	}
	for _, subPath := range []string{"a", "a/b", "./a//b/", "."} {
		file, err := m.OpenBeneath(t.Context(), root, subPath)
		if err != nil {
			t.Errorf("opening subpath %q: error %v, want none", subPath, err)
			continue
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.OpenBeneath(t.Context(), root, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a missing subpath: error %v, want %v", err, fs.ErrNotExist)
	}
}

func TestADirectoryIsComparedWithWhatItsSubPathNamesNow(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), t.TempDir()
	root := mkdir(t, dir, "root")
	part, moved := mkdir(t, root, "a", "part"), filepath.Join(root, "moved")
	if err := m.Bind(t.Context(), root, root, false, nil); err != nil {
		t.Fatal(err)
	}
	unmount := sync.OnceFunc(func() {
		if err := m.Unmount(context.Background(), root); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unmount)
	published := part
	rename := func(from, to string) error {
		if published == from {
			published = to
		}
		return os.Rename(from, to)
	}
	for _, c := range []struct {
		name   string
		change func() error
		want   bool
	}{
		{"it is as it was", func() error { return nil }, true},
		{"nothing has the name", func() error { return rename(part, moved) }, false},
		{"a link to it has the name", func() error { return os.Symlink("../moved", part) }, false},
		{"another directory has the name",
			func() error { return errors.Join(os.Remove(part), os.Mkdir(part, 0o755)) }, false},
		{"it has its name again", func() error { return errors.Join(os.Remove(part), rename(moved, part)) }, true},
		{"a directory above it is another one", func() error {
			published = filepath.Join(root, "b", "part")
			return errors.Join(os.Rename(filepath.Dir(part), filepath.Dir(published)), os.MkdirAll(part, 0o755))
		}, false},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if same, err := m.Shows(t.Context(), published, root, "a/part"); err != nil || same != c.want {
			t.Errorf("%s: %t, error %v; want %t", c.name, same, err, c.want)
		}
	}
	if _, err := m.Shows(t.Context(), published, filepath.Join(dir, "none"), "a/part"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a root: error %v, want %v", err, fs.ErrNotExist)
	}
	// The directory below a mount that is lost shows nothing of it.
	unmount()
	if _, err := m.Shows(t.Context(), published, root, "c"); !errors.Is(err, ErrNotMounted) {
		t.Errorf("with nothing mounted at the root: error %v, want %v", err, ErrNotMounted)
	}
}

func TestNoRaceLeadsASubPathOutside(t *testing.T) {
	m, dir := New(Options{}), t.TempDir()
	root, outside := mkdir(t, dir, "root"), mkdir(t, dir, "outside")
	plain, link := mkdir(t, root, "real"), filepath.Join(root, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	secret, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	swapped := make(chan error, 1)
	go func() { // a tenant replaces a directory by a link and back
		for !stop.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, plain, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				swapped <- err
				return
			}
		}
		swapped <- nil
	}()
	opened := 0
	for range 5000 {
		file, err := m.OpenBeneath(t.Context(), root, "real")
		if errors.Is(err, ErrSubPath) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		opened++
		if info, err := file.Stat(); err != nil || os.SameFile(info, secret) {
			t.Fatalf("opened subpath real: %v, error %v; want a directory other than %s", info, err, outside)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	if err := await(t, "the tenant's end", swapped); err != nil || opened == 0 {
		t.Errorf("subpath real while a link replaces it: opened %d times, error of the replacement %v; want some and none",
			opened, err)
	}
}
