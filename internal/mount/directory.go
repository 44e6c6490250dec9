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
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A directory is a filesystem of its own, in memory, whose only content is places: empty directories with a mount each.
// It is mounted read-only and shared, so that what is mounted at a place appears in containers that receive mounts, and
// nobody can put anything else there.
const (
	// directorySource is the source of a directory in the mount table.
	directorySource = "volumes.hawser.io"
	directoryType   = "tmpfs"
	// mostPlaces limits the memory that a directory takes.
	mostPlaces = "4096"
)

// IsDirectory reports whether the mount is a directory of MakeDirectory.
func (e Entry) IsDirectory() bool { return e.FSType == directoryType && e.Source == directorySource }

// MakeDirectory mounts an empty directory at path, which must exist. It does nothing if one is there. Any other mount
// is ErrOccupied.
func (m *Mounter) MakeDirectory(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "directory", path, func() error {
		table, err := m.Table()
		if err != nil {
			return err
		}
		if e, mounted := table.At(path); mounted {
			if e.IsDirectory() {
				return nil
			}
			return fmt.Errorf("making a directory at %s: %w: %s of %s is mounted there", path, ErrOccupied, e.Root, e.Source)
		}
		if err := makeDirectory(path); err != nil {
			return fmt.Errorf("making a directory at %s: %w", path, err)
		}
		return nil
	})
}

func makeDirectory(path string) (err error) {
	filesystem, err := unix.Fsopen(directoryType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening %s: %w", directoryType, err)
	}
	defer func() { err = errors.Join(err, unix.Close(filesystem)) }()
	for _, option := range [][2]string{{"source", directorySource}, {"mode", "0555"}, {"nr_inodes", mostPlaces},
		{"size", "4k"}} {
		if err := unix.FsconfigSetString(filesystem, option[0], option[1]); err != nil {
			return fmt.Errorf("setting %s: %w", option[0], err)
		}
	}
	if err := unix.FsconfigCreate(filesystem); err != nil {
		return fmt.Errorf("creating the filesystem: %w", err)
	}
	mounted, err := unix.Fsmount(filesystem, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("making a mount: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(mounted)) }()
	// A container runtime refuses to propagate from a mount that is not shared.
	shared := &unix.MountAttr{Propagation: unix.MS_SHARED}
	if err := unix.MountSetattr(mounted, "", unix.AT_EMPTY_PATH, shared); err != nil {
		return fmt.Errorf("sharing the mount: %w", err)
	}
	return moveTo(mounted, path)
}

// MakePlace creates the place in the directory at path dir. It does nothing if the place exists.
func (m *Mounter) MakePlace(ctx context.Context, dir, place string) error {
	return m.changePlaces(ctx, dir, place, func(fd int) error {
		err := unix.Mkdirat(fd, place, 0o555)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(fd, place, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			return fmt.Errorf("%w: it is no directory", ErrOccupied)
		}
		return nil
	})
}

// changePlaces calls change with the directory opened for writing. No mount that others reach becomes writable: the
// clone exists only during the call.
func (m *Mounter) changePlaces(ctx context.Context, dir, place string, change func(fd int) error) error {
	if strings.Contains(place, "/") || place == "" || place == "." || place == ".." {
		return fmt.Errorf("%w: %q is not a plain name", ErrSubPath, place)
	}
	return m.run(ctx, changes, "change of a place", filepath.Join(dir, place), func() error {
		if err := changeWritable(dir, change); err != nil {
			return fmt.Errorf("changing place %s of directory %s: %w", place, dir, err)
		}
		return nil
	})
}

func changeWritable(dir string, change func(fd int) error) (err error) {
	fd, err := openPath(dir, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := isMountRoot(fd); err != nil {
		return err
	}
	clone, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("cloning mount: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(clone)) }()
	if err := unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("setting mount options: %w", err)
	}
	return change(clone)
}

// ClearPlace unmounts what is mounted at the place of the directory at path dir, and removes the place. It succeeds if
// neither is there. As long as a process uses what is mounted there, in any mount namespace, the error is a *HeldError
// that names it. Nothing is detached that may be in use.
func (m *Mounter) ClearPlace(ctx context.Context, dir, place string) error {
	// Buffered: the caller may have given up.
	there := make(chan bool, 1)
	err := m.run(ctx, changes, "clearing of a place", filepath.Join(dir, place), func() error {
		exists, err := emptyPlace(m.Table, dir, place)
		there <- exists
		return err
	})
	if err != nil || !<-there {
		return err
	}
	return m.changePlaces(ctx, dir, place, func(fd int) error {
		err := unix.Unlinkat(fd, place, unix.AT_REMOVEDIR)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTEMPTY):
			return fmt.Errorf("%w: %w", ErrOccupied, err)
		}
		return err
	})
}

// emptyPlace unmounts what is mounted at the place, and reports whether the directory is there. The kernel refuses that
// while a copy to which it propagates is in use. A copy that it leaves in place is looked for before and, because a
// container may have started meanwhile, after the unmount: to remove the place would detach it.
func emptyPlace(read func() (*Table, error), dir, place string) (there bool, err error) {
	path := filepath.Join(filepath.Clean(dir), place)
	table, err := read()
	if err != nil {
		return false, err
	}
	directory, ok := table.At(dir)
	switch there = ok && directory.IsDirectory(); {
	case !there && len(table.All(path)) == 0:
		return false, nil
	case !there:
		return false, fmt.Errorf("clearing %s: %w: its directory", path, ErrNotMounted)
	}
	s := placeScan{directory: directory, place: place, path: path}
	if err := s.check(placeScan.leftBehind); err != nil {
		return true, err
	}
	for range table.All(path) {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			return true, s.busy()
		}
		if err != nil && !errors.Is(err, unix.EINVAL) { // it may be gone by now
			return true, fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	if table, err = read(); err != nil {
		return true, err
	}
	if left := table.All(path); len(left) != 0 {
		return true, fmt.Errorf("unmounting %s: %w: %s of %s", path, ErrStillMounted, left[0].Root, left[0].Source)
	}
	return true, s.check(placeScan.copies)
}
