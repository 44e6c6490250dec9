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
	"strconv"
	"time"

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
)

// SetOwnership gives everything beneath root to the group, and allows the group to read and write it. With
// OnRootMismatch it does nothing if root already has the wanted ownership. It changes root last, so that a retry
// continues an interrupted change. It follows no symbolic link, skips other mounts, and ends with the first error.
// It calls progress, if given, with the number of changed files from time to time.
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
		o := ownership{ctx: ctx, gid: int(fsGroup), progress: progress}
		if err := o.apply(root, policy); err != nil {
			return fmt.Errorf("giving %s to group %d: %w", root, fsGroup, err)
		}
		return nil
	})
}

type ownership struct {
	ctx      context.Context
	gid      int
	files    int
	progress func(int)
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
	if err := o.children(fd, root); err != nil {
		return err
	}
	return o.change(fd, root, &stat)
}

func (o *ownership) fits(stat *unix.Stat_t, mode uint32) bool {
	return int(stat.Gid) == o.gid && stat.Mode&mode == mode
}

// children changes everything in the directory. path is only for messages.
func (o *ownership) children(dir int, path string) error {
	names, err := readNames(dir)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	for _, name := range names {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		if err := o.child(dir, name, filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func (o *ownership) child(dir int, name, path string) (err error) {
	fd, err := openChild(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil // deleted meanwhile, or another mount
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := o.children(fd, path); err != nil {
			return err
		}
	}
	return o.change(fd, path, &stat)
}

// change uses the descriptor, so a concurrent replacement of path has no effect.
func (o *ownership) change(fd int, path string, stat *unix.Stat_t) error {
	if o.files++; o.progress != nil && o.files%progressEvery == 0 {
		o.progress(o.files)
	}
	if int(stat.Gid) != o.gid {
		if err := unix.Fchownat(fd, "", -1, o.gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("changing group of %s: %w", path, err)
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
	// fchmod does not accept an O_PATH descriptor, but its entry in /proc does.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), stat.Mode&0o7777|mode); err != nil {
		return fmt.Errorf("changing permissions of %s: %w", path, err)
	}
	return nil
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

func readNames(dir int) (names []string, err error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "")
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Readdirnames(-1)
}
