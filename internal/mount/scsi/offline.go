/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package scsi reads in sysfs whether the kernel still sends requests to SCSI disks.
package scsi

import (
	"os"
	"path/filepath"
	"strings"
)

// DeadDisk is a SCSI disk that the kernel sends no requests to.
type DeadDisk struct {
	// Name of the kernel, as sda, or that of a multipath device without any disk.
	Name string
	// State of the kernel, or what else is wrong.
	State string
}

// Removed reports whether the kernel has the disk no more. If it comes back, that is another device.
func (d DeadDisk) Removed() bool { return d.State == gone || d.State == withoutPath }

func (d DeadDisk) String() string { return d.Name + " " + d.State }

// What the kernel has no state for.
const (
	gone        = "gone"
	withoutPath = "without a path"
)

// DeadDisks returns the disks below the device with that directory in sysfs if all are dead: a device with many, as one
// of multipath, may work with one of them.
func DeadDisks(dir string) []DeadDisk {
	below, err := filepath.Glob(filepath.Join(dir, "slaves", "*"))
	if err != nil {
		return nil
	}
	if len(below) == 0 {
		return lowest(dir)
	}
	var disks []DeadDisk
	for _, device := range below {
		found := DeadDisks(device)
		if len(found) == 0 {
			return nil
		}
		disks = append(disks, found...)
	}
	return disks
}

// lowest returns the disk that is, or contains, a device without others below it, if it is dead.
func lowest(dir string) []DeadDisk {
	name := filepath.Base(dir)
	dir, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) { // a disk that was removed under a device of the device mapper
		return []DeadDisk{{Name: name, State: gone}}
	}
	if err != nil {
		return nil
	}
	if uuid := read(dir, "dm", "uuid"); strings.HasPrefix(uuid, "mpath-") { // the last path was removed
		return []DeadDisk{{Name: filepath.Base(dir), State: withoutPath}}
	}
	for _, disk := range []string{dir, filepath.Dir(dir)} { // a partition's directory is in that of its disk
		switch state := read(disk, "device", "state"); state {
		case "":
		case "offline", "transport-offline":
			return []DeadDisk{{Name: filepath.Base(disk), State: state}}
		default:
			return nil
		}
	}
	return nil
}

// read returns the text of a file of sysfs, empty if there is none.
func read(path ...string) string {
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
