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
		if err := checkDirectory(m.Table, dir); err != nil {
			return fmt.Errorf("changing place %s of directory %s: %w", place, dir, err)
		}
		if err := changeWritable(dir, change); err != nil {
			return fmt.Errorf("changing place %s of directory %s: %w", place, dir, err)
		}
		return nil
	})
}

// checkDirectory is nil if a directory can be reached at the path.
func checkDirectory(read func() (*Table, error), path string) error {
	table, err := read()
	if err != nil {
		return err
	}
	switch e, mounted := table.At(path); {
	case !mounted:
		return ErrNotMounted
	case !e.IsDirectory():
		return fmt.Errorf("%w: %s of %s is mounted there", ErrOccupied, e.Root, e.Source)
	}
	return nil
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
	clone, err := cloneOf(fd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(clone)) }()
	if err := unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("setting mount options: %w", err)
	}
	return change(clone)
}

// Place is a place of a directory, with what its record has of it.
type Place struct {
	// Directory is the path of the directory, Name that of the place in it.
	Directory, Name string
	// PodUID of the pod that has the directory. Its processes can make copies of a mount that no peer group reveals.
	PodUID string
	// Major, Minor and Root are the filesystem and the part of it that are the volume. What is bound at the place may be a
	// smaller part, which the volume's users can move within the volume.
	Major, Minor int
	Root         string
}

func (p Place) path() string { return filepath.Join(filepath.Clean(p.Directory), p.Name) }

// ClearPlace unmounts what is mounted at the place, and removes the place. It succeeds if neither is there. As long as
// a copy of the mount exists or a process uses it, in any mount namespace, the error is a *HeldError that names a
// process. Nothing is detached that may be in use.
func (m *Mounter) ClearPlace(ctx context.Context, p Place) error {
	// Buffered: the caller may have given up.
	there := make(chan bool, 1)
	err := m.run(ctx, changes, "clearing of a place", p.path(), func() error {
		exists, err := emptyPlace(m.Table, p)
		there <- exists
		return err
	})
	if err != nil || !<-there {
		return err
	}
	return m.changePlaces(ctx, p.Directory, p.Name, func(fd int) error {
		err := unix.Unlinkat(fd, p.Name, unix.AT_REMOVEDIR)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTEMPTY):
			return fmt.Errorf("%w: %w", ErrOccupied, err)
		}
		return err
	})
}

// emptyPlace unmounts what is mounted at the place, and reports whether the directory is there. Copies that an unmount
// leaves in place are looked for before it: to remove the place would detach them.
func emptyPlace(read func() (*Table, error), p Place) (there bool, err error) {
	path := p.path()
	table, err := read()
	if err != nil {
		return false, err
	}
	directory, ok := table.At(p.Directory)
	mounts := table.All(path)
	switch there = ok && directory.IsDirectory(); {
	case !there && len(mounts) == 0:
		return false, newPlaceScan(p, Entry{}, table).check(false)
	case !there:
		return false, fmt.Errorf("clearing %s: %w: its directory", path, ErrNotMounted)
	case len(mounts) > 1:
		return true, fmt.Errorf("clearing %s: %w: %s of %s covers it", path, ErrOccupied, mounts[1].Root, mounts[1].Source)
	case len(mounts) == 1 && (mounts[0].Major != p.Major || mounts[0].Minor != p.Minor):
		return true, fmt.Errorf("clearing %s: %w: %s of %s is mounted there, which is not the volume", path, ErrOccupied,
			mounts[0].Root, mounts[0].Source)
	}
	s := newPlaceScan(p, directory, table)
	if len(mounts) == 0 {
		return true, s.check(false)
	}
	if err := s.check(true); err != nil {
		return true, err
	}
	return true, s.unmount(read)
}

// unmount unmounts what is at the place. The kernel refuses that while a copy to which it propagates is in use. As a
// container may have started meanwhile, other copies are looked for again. Until then a clone keeps the peer group,
// which names them. If there are any, the clone takes the place again.
func (s placeScan) unmount(read func() (*Table, error)) (err error) {
	kept, err := keep(s.path)
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", s.path, err)
	}
	defer func() { err = errors.Join(err, unix.Close(kept)) }()
	err = unix.Unmount(s.path, unix.UMOUNT_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EBUSY):
		return s.busy()
	case err != nil:
		return fmt.Errorf("unmounting %s: %w", s.path, err)
	}
	table, err := read()
	if err == nil && len(table.All(s.path)) != 0 {
		return fmt.Errorf("unmounting %s: %w", s.path, ErrStillMounted)
	}
	if err == nil {
		err = s.check(false)
	}
	if err != nil {
		return errors.Join(err, moveTo(kept, s.path))
	}
	return nil
}

// keep opens a clone of the mount at the path.
func keep(path string) (clone int, err error) {
	fd, err := openPath(path, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }() // it would keep the mount in use
	if err := isMountRoot(fd); err != nil {
		return -1, err
	}
	return cloneOf(fd)
}
