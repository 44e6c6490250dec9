/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// devices are the entries that a kubelet counts as users of a block device.
func devices(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestDeviceNodesCountAsDevicesAndCannotBeOpened(t *testing.T) {
	needsRoot(t)
	for name, options := range map[string]uintptr{"": 0, "on a mount with nodev": unix.MS_NODEV} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			if err := unix.Mount("tmpfs", dir, "tmpfs", options, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			m := New(Options{})
			for _, names := range [][]string{{"a", "b"}, {"a", "b"}, {"b", "c"}, {"c"}, nil, nil} {
				if err := m.SetDeviceNodes(t.Context(), dir, names); err != nil {
					t.Fatal(err)
				}
				listed, err := m.DeviceNodes(dir)
				if err != nil || !slices.Equal(listed, names) || !slices.Equal(devices(t, dir), names) {
					t.Errorf("device nodes in %s: listed %q (error %v), counted %q; want %q", dir, listed, err, devices(t, dir), names)
				}
				for _, name := range names {
					expectMode(t, filepath.Join(dir, name), os.ModeDevice|0o600, 0)
					if _, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0); err == nil {
						t.Errorf("opening device node %s: error %v, want one", name, err)
					}
				}
			}
		})
	}
}

func TestDeviceNodesDoNotChangeAnythingElse(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	write(t, filepath.Join(dir, "file"), "")
	mkdir(t, dir, "directory")
	if err := unix.Mknod(filepath.Join(dir, "loop"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	m := New(Options{})
	if err := m.SetDeviceNodes(t.Context(), dir, []string{"file"}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("device node over an existing file: error %v, want %v", err, unix.EEXIST)
	}
	if err := m.SetDeviceNodes(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "directory", "loop"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if names, err := m.DeviceNodes(filepath.Join(dir, "missing")); err != nil || len(names) != 0 {
		t.Errorf("device nodes in an absent directory: %q, error %v; want none", names, err)
	}
	if err := m.SetDeviceNodes(t.Context(), filepath.Join(dir, "missing"), nil); err != nil {
		t.Error(err)
	}
}
