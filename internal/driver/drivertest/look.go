/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package drivertest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

func makeDir(path string) error { return os.MkdirAll(path, 0o750) }

// lookAtTheMountTable tells what a driver with real mounts published.
func lookAtTheMountTable(t *testing.T, _ driver.Volume, path string) View {
	t.Helper()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return View{}
	}
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Type() == fs.ModeDevice {
		return View{Mode: corev1.PersistentVolumeBlock, ReadOnly: refusesWrites(t, path)}
	}
	table, err := mount.ReadTable(mount.SelfMountInfo)
	if err != nil {
		t.Fatal(err)
	}
	entry, mounted := table.At(path)
	if !mounted {
		return View{}
	}
	return View{Mode: corev1.PersistentVolumeFilesystem, ReadOnly: entry.ReadOnly()}
}

// refusesWrites opens the device; what protects a read-only one, its node's mount or the device itself, is the driver's choice.
func refusesWrites(t *testing.T, device string) bool {
	t.Helper()
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return true
	case err != nil:
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return false
}
