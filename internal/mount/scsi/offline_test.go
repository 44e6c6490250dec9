/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package scsi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// sysfs is a directory with block devices, in which sda is offline, sdb cannot be reached and sdc works.
func sysfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for disk, state := range map[string]string{"sda": "offline", "sdb": "transport-offline", "sdc": "running"} {
		ok(os.MkdirAll(filepath.Join(root, disk, "device"), 0o755))
		ok(os.MkdirAll(filepath.Join(root, disk, disk+"1"), 0o755))
		ok(os.WriteFile(filepath.Join(root, disk, "device", "state"), []byte(state+"\n"), 0o600))
	}
	ok(os.MkdirAll(filepath.Join(root, "loop0"), 0o755))
	for device, below := range map[string][]string{"dm-0": {"sda", "sdb"}, "dm-1": {"sdb", "sdc"}, "dm-2": {"dm-0"},
		"dm-3": {"sda", "loop0"}, "dm-4": {}, "dm-5": {"sda", "sdx"}, "dm-6": {}, "dm-7": {"dm-6"}, "dm-8": {"sdx", "sdc"}} {
		ok(os.MkdirAll(filepath.Join(root, device, "slaves"), 0o755))
		for _, name := range below {
			ok(os.Symlink(filepath.Join(root, name), filepath.Join(root, device, "slaves", name)))
		}
	}
	for device, uuid := range map[string]string{"dm-4": "LVM-1", "dm-6": "mpath-36"} {
		ok(os.MkdirAll(filepath.Join(root, device, "dm"), 0o755))
		ok(os.WriteFile(filepath.Join(root, device, "dm", "uuid"), []byte(uuid+"\n"), 0o600))
	}
	for number, device := range map[string]string{"8:0": "sda", "8:1": "sda/sda1", "8:33": "sdc/sdc1"} {
		ok(os.Symlink(filepath.Join(root, device), filepath.Join(root, number)))
	}
	return root
}

func TestADeviceIsDeadOnceAllItsDisksAre(t *testing.T) {
	root := sysfs(t)
	for device, want := range map[string]string{
		"sda": "[sda offline]", "sdb": "[sdb transport-offline]", "sdc": "[]",
		"8:0": "[sda offline]", "8:1": "[sda offline]", "8:33": "[]",
		"dm-0": "[sda offline sdb transport-offline]", "dm-1": "[]", "dm-2": "[sda offline sdb transport-offline]",
		"dm-3": "[]", "dm-4": "[]", "dm-5": "[sda offline sdx gone]", "dm-6": "[dm-6 without a path]",
		"dm-7": "[dm-6 without a path]", "dm-8": "[]", "loop0": "[]",
	} {
		if got := fmt.Sprint(DeadDisks(filepath.Join(root, device))); got != want {
			t.Errorf("dead disks of %s, if all are dead: %s, want %s", device, got, want)
		}
	}
}
