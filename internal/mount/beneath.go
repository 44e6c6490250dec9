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

// OpenBeneath opens subPath beneath root for BindFile. The kernel resolves it: never above root, and through no
// symbolic link. Concurrent changes of a tenant in the volume therefore cannot lead outside. A sub path that is
// absolute, contains .. or meets a symbolic link is ErrSubPath. One that does not exist is fs.ErrNotExist.
func (m *Mounter) OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error) {
	return m.openBeneath(ctx, root, subPath, openBeneath)
}

// MakeBeneath is OpenBeneath that also creates the missing directories of subPath.
func (m *Mounter) MakeBeneath(ctx context.Context, root, subPath string, perm os.FileMode) (*os.File, error) {
	return m.openBeneath(ctx, root, subPath, func(rootFD int, subPath string) (int, error) {
		return makeBeneath(rootFD, subPath, uint32(perm.Perm()))
	})
}

func (m *Mounter) openBeneath(ctx context.Context, root, subPath string,
	open func(int, string) (int, error)) (*os.File, error) {
	if err := checkSubPath(subPath); err != nil {
		return nil, err
	}
	// Buffered: after the caller gave up, the garbage collector's finalizer closes the file.
	opened := make(chan *os.File, 1)
	err := m.run(ctx, reads, "sub path lookup", filepath.Join(root, subPath), func() (err error) {
		rootFD, err := openPath(root, unix.O_DIRECTORY)
		if err != nil {
			return fmt.Errorf("opening %s: %w", root, err)
		}
		defer func() { err = errors.Join(err, unix.Close(rootFD)) }()
		fd, err := open(rootFD, filepath.Clean(subPath))
		if err != nil {
			return fmt.Errorf("opening %s beneath %s: %w", subPath, root, err)
		}
		opened <- os.NewFile(uintptr(fd), filepath.Join(root, subPath))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-opened, nil
}

func checkSubPath(subPath string) error {
	switch {
	case subPath == "":
		return fmt.Errorf("%w: it is empty", ErrSubPath)
	case filepath.IsAbs(subPath):
		return fmt.Errorf("%w: %q is absolute", ErrSubPath, subPath)
	case strings.ContainsRune(subPath, 0):
		return fmt.Errorf("%w: it contains a zero byte", ErrSubPath)
	}
	for part := range strings.SplitSeq(subPath, "/") {
		if part == ".." {
			return fmt.Errorf("%w: %q has a parent directory (..) in it", ErrSubPath, subPath)
		}
	}
	return nil
}

func openBeneath(dir int, path string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, path, how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// EAGAIN: something was renamed during the lookup, so the kernel cannot guarantee the result.
			continue
		case errors.Is(err, unix.ELOOP):
			return -1, fmt.Errorf("%w: it leads through a symbolic link", ErrSubPath)
		case errors.Is(err, unix.EXDEV):
			return -1, fmt.Errorf("%w: it leads outside", ErrSubPath)
		case errors.Is(err, unix.ENOTDIR):
			return -1, fmt.Errorf("%w: it leads through a file", ErrSubPath)
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf("openat2 needs Linux 5.6: %w", err)
		default:
			return -1, err
		}
	}
}

// makeBeneath opens one directory at a time, each beneath the one before, and creates the missing ones.
func makeBeneath(root int, path string, perm uint32) (fd int, err error) {
	dir, err := openBeneath(root, ".")
	if err != nil {
		return -1, err
	}
	for part := range strings.SplitSeq(path, "/") {
		next, err := openBeneath(dir, part)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(dir, part, perm); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openBeneath(dir, part)
			}
		}
		if err = errors.Join(err, unix.Close(dir)); err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}
