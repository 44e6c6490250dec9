/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// private are directories in which every machine has its own files: sockets, device plugins, links to logs.
var private = []string{"/run", "/var/lib", "/var/log"}

const bootID = "/proc/sys/kernel/random/boot_id"

// mounts separates the machine's mounts from those outside, and creates those that differ.
func mounts(directory string) error {
	for _, path := range private {
		if strings.HasPrefix(directory+"/", path+"/") {
			return fmt.Errorf("the cluster's directory cannot lie below %s, of which each machine has its own", path)
		}
	}
	// Shared inside the machine, as systemd makes it on a real node.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("cutting the mounts off: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, path := range private {
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
	}
	return boot("/run")
}

// boot gives the machine a new boot ID at each start.
func boot(directory string) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	file := filepath.Join(directory, "boot_id")
	if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
		return fmt.Errorf("writing the boot ID: %w", err)
	}
	if err := unix.Mount(file, bootID, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("showing the boot ID: %w", err)
	}
	return nil
}
