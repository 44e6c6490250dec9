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
	"strings"

	"golang.org/x/sys/unix"
)

// OpenBeneath opens subPath beneath root for BindFile. The kernel resolves it: never above root, and through no
// symbolic link. Concurrent changes of a tenant in the volume therefore cannot lead outside. A sub path that is
// absolute, contains .. or meets a symbolic link is ErrSubPath. One that does not exist is fs.ErrNotExist.
func (m *Mounter) OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error) {
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
		fd, err := openBeneath(rootFD, filepath.Clean(subPath))
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

// Shows reports whether path is the directory subPath of root, as OpenBeneath finds it now. It is not if nothing has
// that name, if a symbolic link has, or if the server has no directory of path any more. The error is ErrNotMounted if
// nothing is mounted at root.
func (m *Mounter) Shows(ctx context.Context, path, root, subPath string) (bool, error) {
	// Buffered: the caller may have given up.
	shown := make(chan bool, 1)
	err := m.run(ctx, examinations, "sub path comparison", filepath.Clean(path), func() error {
		same, err := shows(path, root, subPath)
		shown <- same
		return err
	})
	if err != nil {
		return false, err
	}
	return <-shown, nil
}

func shows(path, root, subPath string) (same bool, err error) {
	rootFD, err := openPath(root, unix.O_DIRECTORY)
	if err != nil {
		return false, fmt.Errorf("opening %s: %w", root, err)
	}
	defer func() { err = errors.Join(err, unix.Close(rootFD)) }()
	if err := isMountRoot(rootFD); err != nil { // the directory below a mount that is lost
		return false, fmt.Errorf("opening %s: %w", root, err)
	}
	fd, err := openBeneath(rootFD, filepath.Clean(subPath))
	switch {
	case errors.Is(err, ErrSubPath), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("opening %s beneath %s: %w", subPath, root, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if same, err = sameFile(fd, path); errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return same, err
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
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
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
			return -1, fmt.Errorf("%w: it is no directory, or leads through a file: %w", ErrSubPath, err)
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf("openat2 needs Linux 5.6: %w", err)
		default:
			return -1, err
		}
	}
}
