/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// xfs then answers nothing about a file, not even to the process that has it open.
func TestAUserOfAFilesystemThatWasShutDownIsFound(t *testing.T) {
	needsRoot(t)
	needsProgram(t, "xfs_io")
	for use, begin := range map[string]func(cmd *exec.Cmd, target string){
		"as its directory": func(cmd *exec.Cmd, target string) { cmd.Dir = target },
		"file open": func(cmd *exec.Cmd, target string) {
			file, err := os.Create(filepath.Join(target, "file"))
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout = file
			t.Cleanup(func() { _ = file.Close() })
		},
	} {
		t.Run(use, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			target := mkdir(t, dir, "target")
			mountAt(t, filesystem(t, dir, "xfs"), target, "xfs")
			user := exec.Command("sleep", "1000")
			begin(user, target)
			if err := user.Start(); err != nil {
				t.Fatal(err)
			}
			command(t, "xfs_io", "-x", "-c", "shutdown", target)
			users, err := m.Users(t.Context(), target)
			found := false
			for _, h := range users {
				found = found || h.PID == user.Process.Pid && strings.HasSuffix(h.Use, use)
			}
			if err != nil || !found {
				t.Errorf("users of %s: %v, error %v, want process %d, which has it %s", target, users, err, user.Process.Pid, use)
			}
			if err := user.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = user.Wait() // it was killed
		})
	}
}

// Volumes of one NFS server are directories of one filesystem to the kernel.
func TestAUserOfOneDirectoryOfAFilesystemIsNoUserOfAnother(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	whole := mkdir(t, dir, "whole")
	mountAt(t, "tmpfs", whole, "tmpfs")
	for _, name := range []string{"used", "unused"} {
		mkdir(t, whole, name)
		if err := m.Bind(t.Context(), filepath.Join(whole, name), mkdir(t, dir, name), false, nil); err != nil {
			t.Fatal(err)
		}
	}
	user := exec.Command("sleep", "1000")
	user.Dir = filepath.Join(dir, "used")
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(user.Process.Kill(), user.Wait()) }) // it was killed
	for path, want := range map[string]bool{"used": true, "whole": true, "unused": false} {
		users, err := m.Users(t.Context(), filepath.Join(dir, path))
		found := slices.ContainsFunc(users, func(h Holder) bool { return h.PID == user.Process.Pid })
		if err != nil || found != want {
			t.Errorf("users of %s: %v, error %v, want process %d among them: %t", path, users, err, user.Process.Pid, want)
		}
	}
}

// The disk that fails is a file of a filesystem that is shut down.
func TestWhetherADeviceCanBeReadIsAskedOfItsDisk(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	target := mkdir(t, dir, "target")
	mountAt(t, filesystem(t, dir, "xfs"), target, "xfs")
	device := deviceAt(t, loopDevice(t, target, 1<<20))
	gone := device
	gone.Seq++
	small := deviceAt(t, loopDevice(t, dir, 4096))
	for what, d := range map[string]Device{"empty": device, "smaller than what is read": small, "gone": gone} {
		if err := m.CheckReadable(t.Context(), d); err != nil {
			t.Errorf("device that is %s: error %v, want none", what, err)
		}
	}
	nothing := loopDevice(t, dir, 4096)
	if err := os.Truncate(command(t, "losetup", "--noheadings", "--output", "BACK-FILE", nothing), 0); err != nil {
		t.Fatal(err)
	}
	command(t, "losetup", "--set-capacity", nothing)
	if err := m.CheckReadable(t.Context(), deviceAt(t, nothing)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("device without a single byte: error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if err := m.ShutdownFilesystem(t.Context(), target, nil, dir); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckReadable(t.Context(), device); !errors.Is(err, unix.EIO) {
		t.Errorf("device whose disk fails: error %v, want %v", err, unix.EIO)
	}
}
