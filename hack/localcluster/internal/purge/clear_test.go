/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package purge

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mountAt(t *testing.T, source, path, fsType string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, path, fsType, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) }) // it may be gone
}

func isMountPoint(t *testing.T, path string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), " "+path+" ")
}

func TestUnmountTakesEveryMountBelowTheDirectoryAndNoOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT (needs root): mounting")
	}
	root := t.TempDir()
	victim, namesake, source := filepath.Join(root, "c"), filepath.Join(root, "c2"), filepath.Join(root, "source")
	write(t, filepath.Join(source, "precious"))
	volume := filepath.Join(victim, "volume")
	inner, bound := filepath.Join(volume, "inner"), filepath.Join(victim, "bound")
	mountAt(t, "tmpfs", namesake, "tmpfs", 0)
	mountAt(t, "lower", volume, "tmpfs", 0)
	mountAt(t, "upper", volume, "tmpfs", 0)
	mountAt(t, "tmpfs", inner, "tmpfs", 0)
	mountAt(t, source, bound, "", unix.MS_BIND)
	user, err := os.Create(filepath.Join(inner, "used"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = user.Close() }() // nothing was written to it

	var out bytes.Buffer
	if err := Unmount(victim, &out); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{volume, inner, bound} {
		if isMountPoint(t, path) {
			t.Errorf("%s is still mounted", path)
		}
	}
	if !isMountPoint(t, namesake) {
		t.Error("a mount outside was taken")
	}
	for _, line := range []string{
		"unmounted, though in use: " + inner, "unmounted " + bound,
		"unmounted " + volume + ", tmpfs of upper", "unmounted " + volume + ", tmpfs of lower",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in:\n%s", line, out.String())
		}
	}
	if err := Directory(victim); err != nil || exists(victim) || !exists(filepath.Join(source, "precious")) {
		t.Errorf("deleting the directory: %v; it exists: %t", err, exists(victim))
	}
}
