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

	"golang.org/x/sys/unix"
)

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
