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

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

func makeDir(path string) error { return os.MkdirAll(path, 0o750) }

// mountTableView is what a driver with real mounts published.
func mountTableView(t *testing.T, _ driver.Volume, path string) View {
	t.Helper()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return View{}
	}
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Type() == fs.ModeDevice {
		return View{Mode: corev1.PersistentVolumeBlock}
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
