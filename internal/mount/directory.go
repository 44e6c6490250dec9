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

// MakeDirectory mounts an empty directory at path, which must exist, with an SELinux label unless that is empty. It
// does nothing if one is there. Any other mount is ErrOccupied.
func (m *Mounter) MakeDirectory(ctx context.Context, path, label string) error {
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
		if err := makeDirectory(path, label); err != nil {
			return fmt.Errorf("making a directory at %s: %w", path, err)
		}
		return nil
	})
}

func makeDirectory(path, label string) (err error) {
	filesystem, err := unix.Fsopen(directoryType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening %s: %w", directoryType, err)
	}
	defer func() { err = errors.Join(err, unix.Close(filesystem)) }()
	options := [][2]string{{"source", directorySource}, {"mode", "0555"}, {"nr_inodes", mostPlaces}, {"size", "4k"}}
	if label != "" {
		options = append(options, [2]string{"context", label})
	}
	for _, option := range options {
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
	// Major and Minor are the filesystem of the volume.
	Major, Minor int
	// Bare: nothing was mounted at the place. A mount that is there all the same stays, with ErrStillMounted.
	Bare bool
}

func (p Place) path() string { return filepath.Join(filepath.Clean(p.Directory), p.Name) }

// ClearPlace unmounts what is mounted at the place, and removes the place. It succeeds if neither is there. The kernel
// refuses the unmount while a process uses the mount or a copy that the unmount reaches, in any mount namespace. The
// error is then a *HeldError.
//
// The unmount does not reach private copies, copies with a mount on them and binds elsewhere. The removal of the place
// detaches those at the place, also while they are in use. So it is for the caller to know that the pod has none, and
// that the kernel is asked about the device of the filesystem before the volume is released.
func (m *Mounter) ClearPlace(ctx context.Context, p Place) error {
	// Buffered: the caller may have given up.
	there := make(chan bool, 1)
	err := m.run(ctx, changes, "clearing of a place", p.path(), func() error {
		exists, err := emptyPlace(m.Table, p)
		there <- exists
		if err != nil {
			return fmt.Errorf("clearing %s: %w", p.path(), err)
		}
		return nil
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

// emptyPlace unmounts what is mounted at the place, and reports whether the directory is there.
func emptyPlace(read func() (*Table, error), p Place) (there bool, err error) {
	table, err := read()
	if err != nil {
		return false, err
	}
	directory, ok := table.At(p.Directory)
	there = ok && directory.IsDirectory()
	mounts := table.All(p.path())
	if len(mounts) == 0 {
		return there, nil
	}
	switch e := mounts[len(mounts)-1]; {
	case !there:
		return false, fmt.Errorf("%w: its directory", ErrNotMounted)
	case p.Bare:
		return true, ErrStillMounted
	case len(table.Others(e, mounts)) > 0:
		return true, fmt.Errorf("%w: %s of %s covers it", ErrOccupied, e.Root, e.Source)
	case e.Major != p.Major || e.Minor != p.Minor:
		return true, fmt.Errorf("%w: %s of %s is mounted there, which is not the volume", ErrOccupied, e.Root, e.Source)
	}
	err = unix.Unmount(p.path(), unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return true, &HeldError{Device: Device{Path: p.path()}, Holders: p.users(directory)}
	}
	if err != nil {
		return true, err
	}
	if table, err = read(); err == nil && len(table.All(p.path())) != 0 {
		err = ErrStillMounted
	}
	return true, err
}

// at reports whether the mount is at the place in any mount of the directory, in any mount namespace.
func (p Place) at(t *Table, e, directory Entry) bool {
	parent, ok := t.parent(e)
	return ok && parent.SameSource(directory) && e.Path == filepath.Join(parent.Path, p.Name)
}

// users are the processes that use a mount at the place, as far as /proc shows them. They are for messages only.
func (p Place) users(directory Entry) []Holder {
	pids, err := processes()
	if err != nil {
		return nil
	}
	tables := map[string]*Table{}
	var holders []Holder
	for _, pid := range pids {
		found, _ := askThreads(pid, func(thread process) ([]Holder, error) {
			table, _, err := thread.table(tables, func(t *Table) *Table {
				return t.only(func(e Entry) bool { return p.at(t, e, directory) })
			})
			if err != nil {
				return nil, err
			}
			return thread.usesMounts(table.Entries())
		})
		holders = append(holders, found[:min(len(found), 1)]...)
	}
	return holders
}
