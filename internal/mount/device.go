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
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Device is a block device, or the anonymous device of a filesystem without one.
type Device struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
	// Path of the device node, such as /dev/loop0; empty for an anonymous device.
	Path string `json:"path,omitempty"`
	// Node is true if the path of the call is a device node itself, not a filesystem.
	Node bool `json:"-"`
	// Seq is the disk's sequence number. No other disk gets it during one boot, although it may get the device's
	// number. It is 0 before Linux 5.15, which has none.
	Seq uint64 `json:"seq,omitempty"`
}

// DeviceOf returns the block device of the filesystem mounted at path. If a device node is bound at path, it returns
// that device. ErrNotMounted if path is neither.
func (m *Mounter) DeviceOf(ctx context.Context, path string) (Device, error) {
	path = filepath.Clean(path)
	found := make(chan Device, 1)
	err := m.run(ctx, reads, "device lookup", path, func() error {
		device, err := m.deviceOf(path)
		if err != nil {
			return fmt.Errorf("finding device of %s: %w", path, err)
		}
		found <- device
		return nil
	})
	if err != nil {
		return Device{}, err
	}
	return <-found, nil
}

func (m *Mounter) deviceOf(path string) (Device, error) {
	_, entry, mounted, err := m.At(path)
	if err != nil {
		return Device{}, err
	}
	// First the node itself: a bound device node is a mount too, of the filesystem that contains the node.
	device, isBlock, err := blockDevice(path)
	if isBlock {
		device.Node = true
		return device, err
	}
	if mounted {
		return deviceOfFilesystem(entry)
	}
	if err != nil {
		return Device{}, err
	}
	return Device{}, ErrNotMounted
}

func deviceOfFilesystem(entry Entry) (Device, error) {
	if entry.Major != 0 {
		return named(uint32(entry.Major), uint32(entry.Minor))
	}
	// btrfs has an anonymous device number, so read its source's device. Other sources are not read: that may hang.
	if strings.HasPrefix(entry.Source, "/dev/") {
		if device, isBlock, err := blockDevice(entry.Source); err == nil && isBlock {
			return device, nil
		}
	}
	return Device{Major: uint32(entry.Major), Minor: uint32(entry.Minor)}, nil
}

// blockDevice returns the block device of the node at path, if it is one.
func blockDevice(path string) (Device, bool, error) {
	var stat unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Stat(path, &stat) }); err != nil {
		return Device{}, false, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, false, nil
	}
	device, err := named(unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	return device, true, err
}

// named finds the node's name in sysfs. A device that is gone has no name.
func named(major, minor uint32) (Device, error) {
	device := Device{Major: major, Minor: minor}
	uevent, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", major, minor))
	if errors.Is(err, os.ErrNotExist) {
		return device, nil
	}
	if err != nil {
		return Device{}, fmt.Errorf("reading device's name: %w", err)
	}
	for line := range strings.Lines(string(uevent)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			device.Path = filepath.Join("/dev", name)
		}
	}
	device.Seq, err = sequence(major, minor)
	return device, err
}

// sequence is the sequence number of the disk that contains the device.
func sequence(major, minor uint32) (uint64, error) {
	dir := fmt.Sprintf("/sys/dev/block/%d:%d/", major, minor)
	data, err := os.ReadFile(dir + "diskseq")
	if errors.Is(err, os.ErrNotExist) {
		data, err = os.ReadFile(dir + "../diskseq") // through the link: the disk's directory is the partition's parent
	}
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading device's sequence number: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// DeviceNode returns the block device whose node is at path, or a Device without a path if path is something else.
func (m *Mounter) DeviceNode(ctx context.Context, path string) (Device, error) {
	found := make(chan Device, 1)
	err := m.run(ctx, reads, "device lookup", filepath.Clean(path), func() error {
		device, _, err := blockDevice(path)
		found <- device
		return err
	})
	if err != nil {
		return Device{}, fmt.Errorf("reading device node: %w", err)
	}
	return <-found, nil
}

// DeviceUnder returns the block device of a filesystem, or a Device without a path if it has none. It reads no file of
// the filesystem.
func (m *Mounter) DeviceUnder(entry Entry) (Device, error) { return deviceOfFilesystem(entry) }

// ReadOnly reports whether the kernel refuses writes to the device.
func (m *Mounter) ReadOnly(ctx context.Context, d Device) (bool, error) {
	found := make(chan bool, 1)
	err := m.run(ctx, reads, "read-only lookup", d.number(), func() (err error) {
		fd, err := d.open(unix.O_RDONLY)
		if err != nil {
			return fmt.Errorf("opening %s: %w", d.Path, err)
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		value, err := unix.IoctlGetInt(fd, unix.BLKROGET)
		if err != nil {
			return fmt.Errorf("reading the read-only flag of %s: %w", d.Path, err)
		}
		found <- value != 0
		return nil
	})
	if err != nil {
		return false, err
	}
	return <-found, nil
}

// SetReadOnly makes the kernel refuse or accept writes to the device, also through open descriptors. A device that is
// read-only by itself stays read-only. For a device that is gone it does nothing.
func (m *Mounter) SetReadOnly(ctx context.Context, d Device, readOnly bool) error {
	return m.run(ctx, changes, "setting read-only", d.number(), func() (err error) {
		now, err := d.present()
		if err != nil || now.Path == "" {
			return err
		}
		fd, err := now.open(unix.O_RDONLY)
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("opening %s: %w", d.Path, err)
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		value := 0
		if readOnly {
			value = 1
		}
		if err := unix.IoctlSetPointerInt(fd, unix.BLKROSET, value); err != nil {
			return fmt.Errorf("setting %s read-only %t: %w", d.Path, readOnly, err)
		}
		return nil
	})
}

// Usage of a filesystem.
type Usage struct {
	Capacity, Used, Available int64
	Inodes, InodesUsed        int64
}

// Usage returns how full the filesystem mounted at path is.
func (m *Mounter) Usage(ctx context.Context, path string) (Usage, error) {
	path = filepath.Clean(path)
	found := make(chan Usage, 1)
	err := m.run(ctx, reads, "usage lookup", path, func() error {
		var stat unix.Statfs_t
		if err := unix.Statfs(path, &stat); err != nil {
			return fmt.Errorf("reading usage of %s: %w", path, err)
		}
		found <- Usage{
			Capacity:   int64(stat.Blocks) * stat.Frsize,
			Used:       int64(stat.Blocks-stat.Bfree) * stat.Frsize,
			Available:  int64(stat.Bavail) * stat.Frsize,
			Inodes:     int64(stat.Files),
			InodesUsed: int64(stat.Files - stat.Ffree),
		}
		return nil
	})
	if err != nil {
		return Usage{}, err
	}
	return <-found, nil
}

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
