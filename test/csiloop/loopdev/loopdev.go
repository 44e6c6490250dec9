/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package loopdev attaches and finds loop devices. It reads all its information from the kernel.
package loopdev

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const deletedSuffix = " (deleted)"

// Device is a loop device with a backing file.
type Device struct {
	// Path of the device node, /dev/loopN.
	Path string
	// Backing is the backing file's path when the device was attached.
	Backing string
	// Unlinked is true if the backing file is no longer at that path.
	Unlinked bool
	// ReadOnly devices cannot write to the backing file.
	ReadOnly bool
	// Detaching: it was detached, and goes with its last use. That may be the copy of a mount in another namespace.
	Detaching bool
}

// Name is the device's name in /dev and /sys/block.
func (d Device) Name() string { return filepath.Base(d.Path) }

// List returns every loop device of the machine that has a backing file.
func List() ([]Device, error) {
	entries, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var devices []Device
	for _, entry := range entries {
		device, ok, err := read(filepath.Dir(filepath.Dir(entry)))
		if err != nil {
			return nil, err
		}
		if ok {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// Find returns the devices that were attached to the file at this path, even if the file was unlinked since.
func Find(backing string) ([]Device, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var found []Device
	for _, device := range all {
		if device.Backing == backing {
			found = append(found, device)
		}
	}
	return found, nil
}

// read returns false for a device that is being detached.
func read(sysDir string) (Device, bool, error) {
	backing, err := readAttribute(sysDir, "loop/backing_file")
	if err != nil || backing == "" {
		return Device{}, false, err
	}
	readOnly, err := readAttribute(sysDir, "ro")
	if err != nil || readOnly == "" {
		return Device{}, false, err
	}
	detaching, err := readAttribute(sysDir, "loop/autoclear")
	if err != nil || detaching == "" {
		return Device{}, false, err
	}
	path, unlinked := strings.CutSuffix(backing, deletedSuffix)
	return Device{
		Path:      "/dev/" + filepath.Base(sysDir),
		Backing:   path,
		Unlinked:  unlinked,
		ReadOnly:  readOnly == "1",
		Detaching: detaching == "1",
	}, true, nil
}

func readAttribute(sysDir, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(sysDir, name))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading loop device: %w", err)
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// Attach sets up a free loop device on the open file.
func Attach(file *os.File, readOnly bool) (Device, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return Device{}, fmt.Errorf("opening loop control: %w", err)
	}
	defer func() { _ = control.Close() }() // nothing was written to it
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return Device{}, fmt.Errorf("getting a free loop device: %w", err)
		}
		device := Device{Path: fmt.Sprintf("/dev/loop%d", number), Backing: file.Name(), ReadOnly: readOnly}
		err = configure(device, file)
		if errors.Is(err, unix.EBUSY) {
			continue // another process took this device; the kernel names the next
		}
		return device, err
	}
}

func configure(device Device, file *os.File) error {
	node, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening loop device: %w", err)
	}
	defer func() { _ = node.Close() }() // nothing was written through it
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
	if device.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	if err := unix.IoctlLoopConfigure(int(node.Fd()), &config); err != nil {
		return fmt.Errorf("setting up %s: %w", device.Path, err)
	}
	if device.ReadOnly {
		return nil
	}
	// The kernel goes on to refuse writes to the number of a device whose user was killed after it had asked for that.
	if err := unix.IoctlSetPointerInt(int(node.Fd()), unix.BLKROSET, 0); err != nil {
		return fmt.Errorf("making %s writable: %w", device.Path, err)
	}
	return nil
}

// withOpen opens the device, verifies that it still has the same backing file, and calls do. While the device
// is open it cannot get another backing file.
func (d Device) withOpen(do func(fd int) error) error {
	node, err := os.OpenFile(d.Path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("opening loop device: %w", err)
	}
	defer func() { _ = node.Close() }() // nothing was written through it
	now, ok, err := read("/sys/block/" + d.Name())
	if err != nil {
		return err
	}
	if !ok || now.Backing != d.Backing {
		return unix.ENXIO
	}
	return do(int(node.Fd()))
}

// Detach detaches the device. The kernel delays that while the device is still open or mounted.
func (d Device) Detach() error {
	err := d.withOpen(func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detaching %s: %w", d.Path, err)
	}
	return nil
}

// Refresh updates the device's size from its backing file.
func (d Device) Refresh() error {
	err := d.withOpen(func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
	if err != nil {
		return fmt.Errorf("refreshing the size of %s: %w", d.Path, err)
	}
	return nil
}

// Sever removes all capacity from the device, after the requests in flight. Later reads and writes fail, as on an
// unmapped disk, even if the device is open or mounted.
func (d Device) Sever() error {
	err := d.withOpen(func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err != nil {
			return err
		}
		info.Offset = math.MaxInt64 &^ (1<<30 - 1) // beyond the end of any file
		return unix.IoctlLoopSetStatus64(fd, info)
	})
	if err != nil {
		return fmt.Errorf("severing %s: %w", d.Path, err)
	}
	return nil
}

// Size is the device's capacity in bytes.
func (d Device) Size() (int64, error) {
	var sectors int64
	data, err := readAttribute("/sys/block/"+d.Name(), "size")
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(data, &sectors); err != nil {
		return 0, fmt.Errorf("reading the size of %s: %w", d.Path, err)
	}
	return sectors * 512, nil
}
