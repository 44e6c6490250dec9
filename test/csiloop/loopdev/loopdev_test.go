/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package loopdev

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestADeviceIsWritableAlsoUnderANumberThatWasLeftReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT (needs root to attach loop devices)")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	device, err := Attach(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := device.Detach(); err != nil {
			t.Error(err)
		}
	}()
	node, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	// As the kernel has it when the number is used again.
	if err := unix.IoctlSetPointerInt(int(node.Fd()), unix.BLKROSET, 1); err != nil {
		t.Fatal(err)
	}
	if err := device.Detach(); err != nil {
		t.Fatal(err)
	}
	_ = node.Close()
	if device, err = Attach(file, false); err != nil {
		t.Fatal(err)
	}
	again, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if _, err = again.WriteAt(make([]byte, 4096), 0); err == nil {
		err = again.Sync()
	}
	if err != nil {
		t.Errorf("writing to %s, whose number was left read-only: error %v, want none", device.Path, err)
	}
}
