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
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Permissions that the group gets: read and write, and for a directory also search and setgid. With setgid, files that
// are created in it later belong to the group too.
const (
	groupFileMode = 0o660
	groupDirMode  = 0o770 | unix.S_ISGID

	// progressEvery is after how many files progress is called.
	progressEvery = 1024
	// endGrace is how long a change whose context has ended is waited for.
	endGrace = time.Second

	// ownershipHelpers is how many goroutines help with all changes of ownership of the node together. Each change has
	// one of its own beside them.
	ownershipHelpers = 8
	// namesAtOnce is how many names of a directory are read, and changed by one goroutine.
	namesAtOnce = 32
	// deepestDirectory is how many directories may be nested: more do not fit into a path of PATH_MAX, so few programs
	// reach them. Each has an open descriptor while what is in it is changed.
	deepestDirectory = unix.PathMax / 2
)

// SetOwnership gives everything beneath root to the group, and allows the group to read and write it. With
// OnRootMismatch it does nothing if root already has the wanted ownership. It changes root last, so that a retry
// continues an interrupted change. It follows no symbolic link, skips other mounts, and ends with the first error.
// It calls progress, if given, with the number of changed files from time to time, from several goroutines.
//
// Once ctx ends the change stops at the next file. It is waited for, so that root can be unmounted afterwards. Where
// the filesystem hangs, that takes endGrace, and the error is a *PendingError.
func (m *Mounter) SetOwnership(ctx context.Context, root string, fsGroup int64, policy corev1.PodFSGroupChangePolicy,
	progress func(files int)) error {
	root = filepath.Clean(root)
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, giveUp) })
	defer stop()
	return m.run(waiting, changes, "change of ownership", root, func() error {
		work, ctx := errgroup.WithContext(ctx)
		o := ownership{ctx: ctx, work: work, helpers: m.ownershipHelpers, gid: int(fsGroup), progress: progress}
		if err := o.apply(root, policy); err != nil {
			return fmt.Errorf("giving %s to group %d: %w", root, fsGroup, err)
		}
		return nil
	})
}

// ownership is one change. Its goroutines each have some names of a directory to change, and everything in them.
type ownership struct {
	ctx  context.Context
	work *errgroup.Group
	// helpers has room for each goroutine beside the first one.
	helpers  chan struct{}
	gid      int
	files    atomic.Int64
	progress func(int)
	// linked is held while a file with several names is changed: another goroutine may have found it too.
	linked sync.Mutex
}

// directory is an open one, until the last of its users is done.
type directory struct {
	*os.File
	parent *directory
	name   string
	depth  int
	users  atomic.Int32
}

func (o *ownership) apply(root string, policy corev1.PodFSGroupChangePolicy) (err error) {
	fd, err := openPath(root, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if policy == corev1.FSGroupChangeOnRootMismatch && o.fits(&stat, groupDirMode) {
		return nil
	}
	dir := &directory{name: root}
	if err := dir.open(fd); err != nil {
		return err
	}
	o.work.Go(func() error { return o.children(dir) })
	if err := o.work.Wait(); err != nil {
		return err
	}
	return o.change(fd, &stat)
}

func (o *ownership) fits(stat *unix.Stat_t, mode uint32) bool {
	return int(stat.Gid) == o.gid && stat.Mode&mode == mode
}

// children changes everything in the directory. It gives away what helpers have room for.
func (o *ownership) children(dir *directory) (err error) {
	defer func() { err = errors.Join(err, dir.leave()) }()
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", dir.path(), err)
		}
		if err := o.share(dir, names); err != nil {
			return err
		}
	}
}

// share has a helper change the names, or changes them if none is free.
func (o *ownership) share(dir *directory, names []string) error {
	select {
	case o.helpers <- struct{}{}:
		dir.users.Add(1)
		o.work.Go(func() error {
			defer func() { <-o.helpers }()
			return errors.Join(o.each(dir, names), dir.leave())
		})
		return nil
	default:
		return o.each(dir, names)
	}
}

func (o *ownership) each(dir *directory, names []string) error {
	for _, name := range names {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		if err := o.child(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// child changes a directory before what is in it: files that are created meanwhile get its group.
func (o *ownership) child(dir *directory, name string) error {
	child := &directory{parent: dir, name: name, depth: dir.depth + 1}
	isDir, err := o.changeChild(dir, child)
	if err != nil {
		return fmt.Errorf("changing %.1000s: %w", child.path(), err)
	}
	if isDir {
		return o.children(child)
	}
	return nil
}

// changeChild changes a file or a directory, and opens a directory.
func (o *ownership) changeChild(dir, child *directory) (isDir bool, err error) {
	fd, err := openChild(int(dir.Fd()), child.name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return false, nil // deleted meanwhile, or another mount
	}
	if err != nil {
		return false, fmt.Errorf("opening it: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, fmt.Errorf("reading it: %w", err)
	}
	if err := o.changeOnce(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, err
	}
	return true, child.open(fd)
}

// changeOnce changes a file with several names while no other goroutine does, which would find it half changed.
func (o *ownership) changeOnce(fd int, stat *unix.Stat_t) error {
	if stat.Nlink > 1 && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		o.linked.Lock()
		defer o.linked.Unlock()
		if err := unix.Fstat(fd, stat); err != nil {
			return err
		}
	}
	return o.change(fd, stat)
}

// change uses the descriptor, so a concurrent replacement of the name has no effect.
func (o *ownership) change(fd int, stat *unix.Stat_t) error {
	if files := o.files.Add(1); o.progress != nil && files%progressEvery == 0 {
		o.progress(int(files))
	}
	if int(stat.Gid) != o.gid {
		if err := unix.Fchownat(fd, "", -1, o.gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("changing the group: %w", err)
		}
	}
	mode := uint32(groupFileMode)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil // a link has no permissions of its own
	case unix.S_IFDIR:
		mode = groupDirMode
	}
	if o.fits(stat, mode) {
		return nil
	}
	// Always after a change of group: that cleared setuid and setgid, which are restored from the earlier read.
	if err := chmodOpen(fd, stat.Mode&0o7777|mode); err != nil {
		return fmt.Errorf("changing the permissions: %w", err)
	}
	return nil
}

// chmodOpen changes the permissions of what an O_PATH descriptor refers to. Since Linux 6.6 a call does; before, fchmod
// does not accept such a descriptor, but its entry in /proc does.
func chmodOpen(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	}
	return err
}

// open opens the directory that fd refers to. It has one user.
func (d *directory) open(fd int) error {
	if d.depth > deepestDirectory {
		return fmt.Errorf("more than %d directories are nested in each other", deepestDirectory)
	}
	opened, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	d.File = os.NewFile(uintptr(opened), "")
	d.users.Add(1)
	return nil
}

// leave ends the use of one user.
func (d *directory) leave() error {
	if d.users.Add(-1) > 0 {
		return nil
	}
	return d.Close()
}

// path is only for messages.
func (d *directory) path() string {
	if d.parent == nil {
		return d.name
	}
	return filepath.Join(d.parent.path(), d.name)
}

func openChild(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}
