/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needsRoot skips a test where mounting is not allowed, and names it in the output.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("LEFT OUT (needs root): %s", t.Name())
	}
}

// needsProgram skips a test where a program is missing, and names it in the output.
func needsProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("LEFT OUT (needs %s): %s", name, t.Name())
	}
}

const workspacePrefix = "hawser-mount-"

// workspace is a directory that is removed after the test, only if nothing is mounted below it any more.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", workspacePrefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		table, err := ReadTable(SelfMountInfo)
		if err != nil {
			t.Fatal(err)
		}
		mounts := table.Below(dir)
		for i := range mounts {
			path := mounts[len(mounts)-1-i].Path
			if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				t.Errorf("unmounting %s: %v", path, err)
			}
		}
		if table, err = ReadTable(SelfMountInfo); err != nil || len(table.Below(dir)) != 0 {
			t.Fatalf("mounts below %s after the test: %v, error %v; want none", dir, table.Below(dir), err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func mountAt(t *testing.T, source, target, fsType string) {
	t.Helper()
	if err := unix.Mount(source, target, fsType, 0, ""); err != nil {
		t.Fatalf("mounting %s at %s: %v", source, target, err)
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("running %s %v: error %v, want success: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// loopDevice of a sparse file in dir.
func loopDevice(t *testing.T, dir string, size int64) string {
	t.Helper()
	needsProgram(t, "losetup")
	file, err := os.CreateTemp(dir, "disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	device := command(t, "losetup", "--find", "--show", file.Name())
	t.Cleanup(func() {
		// Runs before the workspace is cleaned up; the kernel detaches the device with its last mount.
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", device, err, out)
		}
	})
	return device
}

// filesystem returns a device with a new filesystem.
func filesystem(t *testing.T, dir, fsType string) string {
	t.Helper()
	needsProgram(t, "mkfs."+fsType)
	device := loopDevice(t, dir, 320<<20)
	command(t, "mkfs."+fsType, device)
	return device
}

// inOwnNamespace runs f in a thread with a mount namespace of its own. The thread ends with it.
func inOwnNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done) // also if the test ends within
		done <- ownNamespace(unix.MS_PRIVATE, f)
	}()
	if err := <-done; err != nil {
		t.Fatalf("making a mount namespace: %v", err)
	}
}

// detachOthers takes the mounts of other tests out of this namespace. Each of them would go, at any moment, with the
// directory that it is mounted on: the kernel takes such a mount out of every namespace.
func detachOthers() error {
	table, err := ReadTable(threadMountInfo())
	if err != nil {
		return err
	}
	own := filepath.Join(os.TempDir(), workspacePrefix)
	for _, e := range slices.Backward(table.Below(os.TempDir())) {
		if strings.HasPrefix(e.Path, own) {
			continue
		}
		err := unix.Unmount(e.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it has gone by itself
			return err
		}
	}
	return nil
}

func ownNamespace(propagation uintptr, f func()) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the table of the first thread is that of the process
		defer runtime.UnlockOSThread()
		done := make(chan error)
		go func() {
			defer close(done)
			done <- ownNamespace(propagation, f)
		}()
		return <-done
	}
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|propagation, "")
	}
	if err == nil {
		err = detachOthers()
	}
	if err == nil {
		f()
	}
	return err
}
