/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind mounts source, a directory or a file such as a device node, at target. The target must exist and have the same
// type (EnsureDir, EnsureFile). The mount appears with all its options at once, so that a read-only mount is never
// writable. If source is already mounted there, Bind changes only options that differ. Any other mount at target is
// ErrOccupied. An option that belongs to the filesystem, not to a mount, is ErrOption.
func (m *Mounter) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	attr, err := bindAttributes(readOnly, options)
	if err != nil {
		return fmt.Errorf("binding at %s: %w", target, err)
	}
	return m.bind(ctx, target, attr, func(use func(fd int) error) (err error) {
		fd, err := openPath(source, 0)
		if err != nil {
			return fmt.Errorf("opening source %s: %w", source, err)
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		return use(fd)
	})
}

// BindFile is Bind with an open source, for instance from OpenBeneath. An O_PATH descriptor is enough.
func (m *Mounter) BindFile(ctx context.Context, source *os.File, target string, readOnly bool, options []string) error {
	attr, err := bindAttributes(readOnly, options)
	if err != nil {
		return fmt.Errorf("binding at %s: %w", target, err)
	}
	return m.bind(ctx, target, attr, opened(source))
}

// BindAlone is BindFile for a mount that shares no later change with its source. Where what is around the target is
// shared, the mount has a peer group of its own, and so have its copies and nothing else.
func (m *Mounter) BindAlone(ctx context.Context, source *os.File, target string, readOnly bool) error {
	attr, err := bindAttributes(readOnly, nil)
	if err != nil {
		return fmt.Errorf("binding at %s: %w", target, err)
	}
	attr.Propagation = unix.MS_PRIVATE
	return m.bind(ctx, target, attr, opened(source))
}

func opened(source *os.File) func(use func(fd int) error) error {
	return func(use func(fd int) error) error {
		conn, err := source.SyscallConn()
		if err != nil {
			return err
		}
		// Control keeps the descriptor open during the call, so that no other file gets its number.
		var used error
		err = conn.Control(func(fd uintptr) { used = use(int(fd)) })
		return errors.Join(err, used)
	}
}

func (m *Mounter) bind(ctx context.Context, target string, attr *unix.MountAttr,
	with func(use func(fd int) error) error) error {
	target = filepath.Clean(target)
	return m.run(ctx, changes, "bind", target, func() error {
		err := with(func(fd int) error { return m.bindDescriptor(fd, target, attr) })
		if err != nil {
			return fmt.Errorf("binding at %s: %w", target, err)
		}
		return nil
	})
}

// bindDescriptor mounts a clone of fd at target, unless it is mounted there already.
func (m *Mounter) bindDescriptor(fd int, target string, attr *unix.MountAttr) error {
	table, err := m.recent()
	if err != nil {
		return err
	}
	if entry, mounted := table.At(target); mounted {
		return m.adjust(fd, target, entry, attr)
	}
	if err := attach(fd, target, attr); err != nil {
		return err
	}
	return m.verify(fd, target, attr)
}

// adjust sets the wanted options of the mount at target, if it shows the same file as fd.
func (m *Mounter) adjust(fd int, target string, entry Entry, attr *unix.MountAttr) error {
	same, err := sameFile(fd, target)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%w: %s of %s is mounted there", ErrOccupied, entry.Root, entry.Source)
	}
	// To leave its peer group would end what its copies receive.
	options := &unix.MountAttr{Attr_set: attr.Attr_set, Attr_clr: attr.Attr_clr}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, options); err != nil {
		return fmt.Errorf("setting mount options: %w", err)
	}
	return m.verify(fd, target, attr)
}

// attach clones fd's mount, sets the clone's options while it is unreachable, and moves it to target.
func attach(fd int, target string, attr *unix.MountAttr) (err error) {
	clone, err := cloneOf(fd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(clone)) }()
	if err := unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("setting mount options: %w", err)
	}
	return moveTo(clone, target)
}

// cloneOf opens a copy of fd's mount that is attached nowhere. It has the same peer group.
func cloneOf(fd int) (int, error) {
	clone, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("cloning mount: %w", err)
	}
	return clone, nil
}

// moveTo attaches a mount that is attached nowhere at target.
func moveTo(mount int, target string) (err error) {
	at, err := openPath(target, unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("opening target: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(at)) }()
	if err := notSymlink(at); err != nil {
		return err
	}
	if err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("attaching mount: %w", err)
	}
	return nil
}

// verify checks the result, because another program may have mounted over it meanwhile.
func (m *Mounter) verify(fd int, target string, attr *unix.MountAttr) error {
	_, entry, mounted, err := m.At(target)
	if err != nil {
		return err
	}
	if !mounted {
		return fmt.Errorf("verifying: %w", ErrNotMounted)
	}
	same, err := sameFile(fd, target)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("verifying: %w: %s of %s is mounted there", ErrOccupied, entry.Root, entry.Source)
	}
	if attr.Attr_set&unix.MOUNT_ATTR_RDONLY != 0 && !entry.ReadOnly() {
		return errors.New("verifying: the mount is writable")
	}
	return nil
}

// sameFile reports whether path shows exactly the file or directory of fd.
func sameFile(fd int, path string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		return false, fmt.Errorf("reading source: %w", err)
	}
	if err := unix.Lstat(path, &b); err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}

func notSymlink(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("reading target: %w", err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return fmt.Errorf("%w: a symbolic link", ErrOccupied)
	}
	return nil
}

func openPath(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Unmount removes the top-most mount at path. It succeeds if nothing exists or is mounted there. While the mount is in
// use, the error is EBUSY. If another mount was below the removed one, the error is ErrStillMounted, and the next call
// removes that mount.
func (m *Mounter) Unmount(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "unmount", path, func() error {
		table, err := m.Table()
		if err != nil {
			return err
		}
		if len(table.All(path)) == 0 {
			return nil
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
		if table, err = m.Table(); err != nil {
			return err
		}
		if left := table.All(path); len(left) != 0 {
			return fmt.Errorf("unmounting %s: %w: %s of %s", path, ErrStillMounted, left[0].Root, left[0].Source)
		}
		return nil
	})
}

// OpenMount opens the root of the mount at path for BindFile. A path at which nothing is mounted is ErrNotMounted: a
// directory below a mount that has gone is never opened. What is opened stays the same mount, whatever happens at path.
func (m *Mounter) OpenMount(ctx context.Context, path string) (*os.File, error) {
	// Buffered: after the caller gave up, the garbage collector's finalizer closes the file.
	opened := make(chan *os.File, 1)
	err := m.run(ctx, reads, "mount lookup", path, func() error {
		fd, err := openPath(path, unix.O_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		if err := isMountRoot(fd); err != nil {
			return errors.Join(fmt.Errorf("opening %s: %w", path, err), unix.Close(fd))
		}
		opened <- os.NewFile(uintptr(fd), path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-opened, nil
}

func isMountRoot(fd int) error {
	var stat unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat); err != nil {
		return err
	}
	if stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return ErrNotMounted
	}
	return nil
}

// attribute is how one option changes a mount's attributes.
type attribute struct{ set, clear uint64 }

// attributes are the options that belong to a mount, not to its filesystem. Only these can differ between bind mounts.
var attributes = map[string]attribute{
	"defaults":    {},
	"bind":        {},
	"ro":          {set: unix.MOUNT_ATTR_RDONLY},
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC},
	"nosymfollow": {set: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"symfollow":   {clear: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME},
	// The access time options exclude each other, so each clears the whole field before it sets its value.
	"noatime":     {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"relatime":    {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"atime":       {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
}

// bindAttributes converts options to attributes. Of contradictory options, the later one applies. readOnly is separate
// from the options and overrides rw.
func bindAttributes(readOnly bool, options []string) (*unix.MountAttr, error) {
	attr := &unix.MountAttr{}
	for _, option := range options {
		a, ok := attributes[option]
		if !ok {
			return nil, fmt.Errorf("%w: %q cannot be set on a bind mount", ErrOption, optionName(option))
		}
		attr.Attr_set = attr.Attr_set&^a.clear | a.set
		attr.Attr_clr = attr.Attr_clr&^a.set | a.clear
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		attr.Attr_clr &^= unix.MOUNT_ATTR_RDONLY
	}
	return attr, nil
}

// optionName removes an option's value, which may be a password.
func optionName(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}
