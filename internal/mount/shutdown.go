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

const (
	// fsIocShutdown is FS_IOC_SHUTDOWN, _IOR('X', 125, __u32): the same for ext4, xfs, f2fs and others.
	fsIocShutdown = 0x8004587d
	// shutdownNoLogFlush discards everything in memory, including the journal.
	shutdownNoLogFlush = 0x2
)

// ShutdownFilesystem stops the filesystem mounted at path at once. Data that is not yet on the device is lost,
// and every later access fails. It is for a volume that was forced away from this node. It is not complete
// proof that nothing is written any more: ext4 still wrote metadata in a test.
//
// It never shuts down a filesystem that does not belong to the volume alone. path must be the mount of a whole
// filesystem. Its other mounts must be strictly below path or one of the directories within. Otherwise, or if
// the filesystem does not support it, the error is ErrShutdownUnsupported.
//
// It calls still, if given, while it holds the filesystem open. The result of still is therefore about the filesystem
// that is shut down, however long the caller slept before. On an error of still it returns that and does nothing.
func (m *Mounter) ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error {
	path = filepath.Clean(path)
	return m.run(ctx, changes, "shutdown", path, func() error {
		entry, err := m.shutdownTarget(path, within)
		if err == nil {
			err = shutdown(path, entry, still)
		}
		if err != nil {
			return fmt.Errorf("shutting down filesystem at %s: %w", path, err)
		}
		return nil
	})
}

func (m *Mounter) shutdownTarget(path string, within []string) (Entry, error) {
	table, err := m.Table()
	if err != nil {
		return Entry{}, err
	}
	entry, mounted := table.At(path)
	if !mounted {
		return Entry{}, ErrNotMounted
	}
	if entry.Major == 0 || entry.Root != "/" {
		return Entry{}, fmt.Errorf("%w: %s of a %s without a device of its own",
			ErrShutdownUnsupported, entry.Root, entry.FSType)
	}
	if others := table.outside(entry, within); len(others) > 0 {
		return Entry{}, fmt.Errorf("%w: it is mounted at %s too", ErrShutdownUnsupported, others[0].Path)
	}
	return entry, nil
}

func strictlyBelow(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/") && path != filepath.Clean(dir)
}

// shutdown uses a descriptor, after it has verified that it is the mount of the decision.
func shutdown(path string, entry Entry, still func() error) (err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EIO) && entry.FSType == "xfs" {
		return nil // xfs refuses the open after a shutdown, by an earlier call or after a failure of its device
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var stat unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS,
		&stat); err != nil {
		return err
	}
	if stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 || int(stat.Dev_major) != entry.Major ||
		int(stat.Dev_minor) != entry.Minor {
		return fmt.Errorf("%w: another filesystem than before", ErrNotMounted)
	}
	if still != nil {
		if err := still(); err != nil {
			return err
		}
	}
	err = unix.IoctlSetPointerInt(int(file.Fd()), fsIocShutdown, shutdownNoLogFlush)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w by %s: %w", ErrShutdownUnsupported, entry.FSType, err)
	}
	return err
}
