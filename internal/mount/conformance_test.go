/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/mount/mounttest"
)

func TestAMounterConforms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("LEFT OUT (needs root): %s", t.Name())
	}
	for name, test := range mounttest.Cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() { unmountBelow(t, dir) })
			test(t, mounttest.Host{Mounts: mount.New(mount.Options{}), Dir: dir, Mount: func(path string) {
				if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"); err != nil {
					t.Fatal(err)
				}
			}})
		})
	}
}

func unmountBelow(t *testing.T, dir string) {
	table, err := mount.ReadTable(mount.SelfMountInfo)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table.Below(dir) {
		if err := unix.Unmount(e.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Error(err)
		}
	}
}
