/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package harnesstest binds the harness to a test: processes end with the test, and leftovers fail it.
package harnesstest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
)

// startTimeout limits a build and a start.
const startTimeout = 5 * time.Minute

// NeedRoot skips the test without root, and names it in the output.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("LEFT OUT (needs root): %s mounts and sets up loop devices", t.Name())
	}
}

// NeedProgram skips the test without the program, and names it in the output.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("LEFT OUT (needs %s): %s", name, t.Name())
	}
}

// Dir creates a directory whose path is short enough for sockets below it. The test fails if a loop device or a
// mount is left there at its end. Dir then removes it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "loop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clean(t, dir) })
	return dir
}

func clean(t testing.TB, dir string) {
	devices, mounts, err := harness.Leftovers(dir)
	if err != nil {
		t.Errorf("finding leftovers: %v", err)
		return
	}
	for _, path := range slices.Backward(mounts) {
		t.Errorf("%s is still mounted after the test, want nothing mounted below %s", path, dir)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", path, err)
		}
	}
	for _, device := range devices {
		t.Errorf("device %s is still attached to %s after the test, want none", device.Path, device.Backing)
		if err := device.Detach(); err != nil {
			t.Error(err)
		}
	}
	// Mount points were here, so only this one filesystem may be deleted.
	out, err := exec.CommandContext(context.Background(), "rm", "-rf", "--one-file-system", dir).CombinedOutput()
	if err != nil {
		t.Errorf("removing %s: %v: %s", dir, err, out)
	}
}

// Start runs a process that ends with the test. It creates empty directories below dir: <dir>/backing, <dir>/<node>.
func Start(t testing.TB, dir string, options harness.Options) *harness.Process {
	t.Helper()
	if options.BackingDir == "" {
		options.BackingDir = filepath.Join(dir, "backing")
	}
	if options.KubeletDir == "" && options.Mode != driver.ModeController {
		options.KubeletDir = filepath.Join(dir, options.NodeID)
	}
	var said bytes.Buffer
	if options.Log == nil {
		options.Log = &said
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	process, err := harness.Start(ctx, options)
	if err != nil {
		t.Fatalf("starting the driver of node %q: error %v, want success\n%s", options.NodeID, err, said.String())
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("output of %s %s:\n%s", options.Mode, options.NodeID, said.String())
		}
	})
	return process
}
