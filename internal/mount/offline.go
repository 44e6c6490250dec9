/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"os"
	"path/filepath"
	"strings"
)

// States of a SCSI disk in which the kernel refuses each request to it. The second one ends by itself, once the disk
// can be reached again.
const (
	stateOffline          = "offline"
	stateTransportOffline = "transport-offline"
)

// OfflineDisk is a SCSI disk that is offline.
type OfflineDisk struct {
	// Name of the kernel, as sda.
	Name string
	// State of the kernel.
	State string
}

// Returns reports whether the disk works again by itself once it can be reached.
func (d OfflineDisk) Returns() bool { return d.State == stateTransportOffline }

func (d OfflineDisk) String() string { return d.Name + " " + d.State }

// offlineDisks returns the disks below the device with that directory in sysfs if all are offline: a device with many,
// as one of multipath, may work with one of them.
func offlineDisks(dir string) []OfflineDisk {
	below, err := filepath.Glob(filepath.Join(dir, "slaves", "*"))
	if err != nil {
		return nil
	}
	if len(below) == 0 {
		return offlineDisk(dir)
	}
	var disks []OfflineDisk
	for _, device := range below {
		found := offlineDisks(device)
		if len(found) == 0 {
			return nil
		}
		disks = append(disks, found...)
	}
	return disks
}

// offlineDisk returns the disk that is, or contains, a device without others below it, if it is offline.
func offlineDisk(dir string) []OfflineDisk {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	for _, disk := range []string{dir, filepath.Dir(dir)} { // a partition's directory is in that of its disk
		data, err := os.ReadFile(filepath.Join(disk, "device", "state"))
		if err != nil {
			continue
		}
		state := strings.TrimSpace(string(data))
		if state == stateOffline || state == stateTransportOffline {
			return []OfflineDisk{{Name: filepath.Base(disk), State: state}}
		}
		return nil
	}
	return nil
}
