/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// EnsureDir creates the directory and its parents, if they do not exist. Anything else at path is ErrOccupied.
// A path with a mount is accepted without access to it, because the mounted filesystem may hang.
func (m *Mounter) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	return m.ensure(ctx, path, func() error {
		if err := os.MkdirAll(path, perm); err != nil && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		return expect(path, fs.ModeDir)
	})
}

// EnsureFile creates an empty file, as the target to bind a device node at, and its parent directories. It does nothing
// if the file exists. Anything but an empty regular file or a path with a mount is ErrOccupied.
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
		table, err := m.recent()
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

// expect returns ErrOccupied unless path is a directory (fs.ModeDir) or an empty regular file (0).
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

// Occupant names what is at the path and is no mount point of EnsureDir (fs.ModeDir) or EnsureFile (0). It is empty if
// nothing else is there. It is for paths of the node's own disk, with nothing mounted.
func Occupant(path string, typ fs.FileMode) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode().Type() != typ || typ == 0 && info.Size() != 0:
		return "a " + typeName(info.Mode()), nil
	case typ == 0:
		return "", nil
	}
	return contents(path)
}

// contents names the first few entries of the directory; empty if there are none.
func contents(path string) (text string, err error) {
	const shown = 3
	dir, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names, err := dir.Readdirnames(shown + 1)
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	text = fmt.Sprintf("a directory with %q", names[:min(shown, len(names))])
	if len(names) > shown {
		text += " and more"
	}
	return text, nil
}

// RemoveMountPoint removes a mount point of EnsureDir or EnsureFile: an empty directory or empty regular file without a
// mount. It succeeds if the path does not exist. Anything else is ErrOccupied or ErrStillMounted, and stays.
func (m *Mounter) RemoveMountPoint(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "removal", path, func() error {
		table, err := m.Table()
		if err != nil {
			return err
		}
		// The kernel protects mount points of this mount namespace only. In others, removal would detach the mount.
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
		by, err := contents(path)
		return errors.Join(fmt.Errorf("%w by %s", ErrOccupied, by), err)
	}
	return err
}
