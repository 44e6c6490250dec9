/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package harness

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// Leftovers lists the loop devices on files below the directory, and the mounts below it or of those devices.
func Leftovers(dir string) (devices []loopdev.Device, mounts []string, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("resolving directory: %w", err)
	}
	all, err := loopdev.List()
	if err != nil {
		return nil, nil, err
	}
	sources := map[string]bool{}
	for _, device := range all {
		if strings.HasPrefix(device.Backing, dir+"/") {
			sources[device.Path] = true
			if !device.Detaching { // otherwise only another program's mount namespace has a copy of a mount of it
				devices = append(devices, device)
			}
		}
	}
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("reading mount table: %w", err)
	}
	for _, info := range table {
		if sources[info.Source] || strings.HasPrefix(info.Mountpoint, dir+"/") {
			mounts = append(mounts, info.Mountpoint)
		}
	}
	return devices, mounts, nil
}
