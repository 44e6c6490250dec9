/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopDevice is one with a backing file, which its inode tells from a later one.
type loopDevice struct {
	path, file    string
	device, inode uint64
}

// loopDevices lists the loop devices on files below the directory. It must run while the machines do: without
// the mounts, the path of a file is unknown.
func loopDevices(directory string) ([]loopDevice, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var devices []loopDevice
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(backing), directory+"/") {
			continue // another cluster's, or it was detached meanwhile
		}
		path := "/dev/" + strings.Split(file, "/")[3]
		info, err := loopInfo(path)
		if errors.Is(err, unix.ENXIO) {
			continue
		}
		if err != nil {
			return nil, err
		}
		devices = append(devices, loopDevice{path, strings.TrimSpace(string(backing)), info.Device, info.Inode})
	}
	return devices, nil
}

func loopInfo(path string) (*unix.LoopInfo64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the loop device: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written to it
	info, err := unix.IoctlLoopGetStatus64(int(file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("reading the status of %s: %w", path, err)
	}
	return info, nil
}

// detach takes the devices off their files, unless that was done already, and prints each device.
func detach(devices []loopDevice, out io.Writer) error {
	var problems []error
	for _, device := range devices {
		problems = append(problems, device.detach(out))
	}
	return errors.Join(problems...)
}

func (d loopDevice) detach(out io.Writer) error {
	info, err := loopInfo(d.path)
	if errors.Is(err, unix.ENXIO) || err == nil && (info.Device != d.device || info.Inode != d.inode) {
		return nil
	}
	if err != nil {
		return err
	}
	file, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("opening the loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(file.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("detaching %s: %w", d.path, err)
	}
	_, _ = fmt.Fprintf(out, "detached %s from %s\n", d.path, d.file) // progress only
	return nil
}
