/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mapDir has the devices of the device mapper by their names.
const mapDir = "/dev/mapper/"

// mapOf returns the device that multipathd has made of a disk and of how many others, or "".
func mapOf(disk string) (device string, disks int, err error) {
	holders, err := filepath.Glob(filepath.Join("/sys/class/block", disk, "holders", "dm-*"))
	if err != nil || len(holders) == 0 {
		return "", 0, err
	}
	name, err := os.ReadFile(filepath.Join(holders[0], "dm", "name"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil // it has just ended
	}
	if err != nil {
		return "", 0, err
	}
	slaves, err := os.ReadDir(filepath.Join(holders[0], "slaves"))
	return mapDir + strings.TrimSpace(string(name)), len(slaves), err
}

// removeMap removes the device if multipathd has made it.
func removeMap(ctx context.Context, device string) error {
	if !strings.HasPrefix(device, mapDir) {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "multipath", "-f", filepath.Base(device)).CombinedOutput(); err != nil {
		return fmt.Errorf("removing the map %s: %w: %s", device, err, out)
	}
	return nil
}
