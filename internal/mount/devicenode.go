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
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// noDevice is the number of a block device that never exists: the kernel gives major number 0 to filesystems without a
// device. No program can open such a node, in this boot or the next, and no other program creates one.
const noDevice = 0

// DeviceNodes lists the names of the nodes in dir that SetDeviceNodes created. A directory that does not exist
// has none.
func (m *Mounter) DeviceNodes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing device nodes: %w", err)
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing device nodes: %w", err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Mode&unix.S_IFMT == unix.S_IFBLK && stat.Rdev == noDevice {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SetDeviceNodes creates a block device node of no device in dir for each name. It removes its nodes with other
// names, and does not change anything else in dir. It is idempotent. It needs CAP_MKNOD, and also works on a
// mount with the option nodev.
func (m *Mounter) SetDeviceNodes(ctx context.Context, dir string, names []string) error {
	dir = filepath.Clean(dir)
	return m.run(ctx, changes, "change of device nodes", dir, func() error {
		present, err := m.DeviceNodes(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if slices.Contains(present, name) {
				continue
			}
			if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFBLK|0o600, noDevice); err != nil {
				return fmt.Errorf("making device node %s: %w", filepath.Join(dir, name), err)
			}
		}
		for _, name := range present {
			if slices.Contains(names, name) {
				continue
			}
			if err := unix.Unlink(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("removing device node %s: %w", filepath.Join(dir, name), err)
			}
		}
		return nil
	})
}
