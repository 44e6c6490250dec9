/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// EnsureDir makes the directory, and its parents, unless it is there. Anything else at path is ErrOccupied.
// A mounted path is left alone without being looked at: what is mounted may hang.
func (m *Mounter) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	return m.ensure(ctx, path, func() error {
		if err := os.MkdirAll(path, perm); err != nil && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		return expect(path, fs.ModeDir)
	})
}

// EnsureFile makes an empty file, as a target to bind a device node at, and the directories above it, unless it
// is there. Anything but an empty regular file or a mounted path is ErrOccupied.
func (m *Mounter) EnsureFile(ctx context.Context, path string, perm fs.FileMode) error {
	return m.ensure(ctx, path, func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
		if errors.Is(err, fs.ErrExist) {
			return expect(path, 0)
		}
		if err != nil {
			return err
		}
		return file.Close()
	})
}

func (m *Mounter) ensure(ctx context.Context, path string, f func() error) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "creation", path, func() error {
		table, err := m.Table()
		if err != nil {
			return err
		}
		if len(table.All(path)) != 0 {
			return nil
		}
		if err := f(); err != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
		return nil
	})
}

// expect says ErrOccupied unless path is a directory (fs.ModeDir) or an empty regular file (0).
func expect(path string, typ fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != typ {
		return fmt.Errorf("%w by a %s", ErrOccupied, typeName(info.Mode()))
	}
	if typ == 0 && info.Size() != 0 {
		return fmt.Errorf("%w by a file of %d bytes", ErrOccupied, info.Size())
	}
	return nil
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeDevice != 0:
		return "device node"
	default:
		return "special file"
	}
}

// RemoveMountPoint removes what EnsureDir or EnsureFile made: an empty directory or an empty regular file at which
// nothing is mounted. A path that is not there is done; anything else is ErrOccupied or
// ErrStillMounted, and stays.
func (m *Mounter) RemoveMountPoint(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "removal", path, func() error {
		table, err := m.Table()
		if err != nil {
			return err
		}
		// The kernel refuses to remove a mount point of this mount namespace only; in others it would detach the mount.
		if mounts := table.All(path); len(mounts) != 0 {
			return fmt.Errorf("removing %s: %w: %s of %s", path, ErrStillMounted, mounts[0].Root, mounts[0].Source)
		}
		if err := remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", path, err)
		}
		return nil
	})
}

func remove(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if err := expect(path, 0); err != nil {
			return err
		}
		return unix.Unlink(path)
	}
	err = unix.Rmdir(path)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: the directory is not empty", ErrOccupied)
	}
	return err
}
