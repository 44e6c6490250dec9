/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const group = 2000

func mode(t *testing.T, path string) (fs.FileMode, uint32) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode(), info.Sys().(*syscall.Stat_t).Gid
}

func expectMode(t *testing.T, path string, want fs.FileMode, gid uint32) {
	t.Helper()
	if got, g := mode(t, path); got != want || g != gid {
		t.Errorf("%s: %v of group %d, expected %v of %d", path, got, g, want, gid)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestTheGroupMayReadAndWriteEverything(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	root, outside := mkdir(t, dir, "root"), write(t, filepath.Join(dir, "outside"), "")
	sub, other := mkdir(t, root, "sub"), mkdir(t, root, "other")
	file, program := write(t, filepath.Join(sub, "file"), ""), write(t, filepath.Join(sub, "program"), "")
	chmod(t, file, 0o400)
	chmod(t, program, 0o755|fs.ModeSetuid)
	link := filepath.Join(root, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	mountAt(t, "tmpfs", other, "tmpfs")
	chmod(t, other, 0o700)

	if err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeAlways, nil); err != nil {
		t.Fatal(err)
	}
	expectMode(t, root, fs.ModeDir|fs.ModeSetgid|0o775, group)
	expectMode(t, sub, fs.ModeDir|fs.ModeSetgid|0o775, group)
	expectMode(t, file, 0o660, group)
	expectMode(t, program, fs.ModeSetuid|0o775, group)
	expectMode(t, link, fs.ModeSymlink|0o777, group)
	expectMode(t, outside, 0o644, 0)
	expectMode(t, other, fs.ModeDir|0o700, 0)
}

func TestOnRootMismatchChecksTheRootOnly(t *testing.T) {
	needsRoot(t)
	m, root := New(Options{}), workspace(t)
	if err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeAlways, nil); err != nil {
		t.Fatal(err)
	}
	sub := mkdir(t, root, "sub")
	if err := os.Chown(sub, 0, 0); err != nil {
		t.Fatal(err)
	}
	chmod(t, sub, 0o700)
	if err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeOnRootMismatch, nil); err != nil {
		t.Fatal(err)
	}
	expectMode(t, sub, fs.ModeDir|0o700, 0)
	chmod(t, root, 0o770) // without setgid it is a mismatch
	if err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeOnRootMismatch, nil); err != nil {
		t.Fatal(err)
	}
	expectMode(t, sub, fs.ModeDir|fs.ModeSetgid|0o770, group)
}

func TestARetryContinuesAnInterruptedChange(t *testing.T) {
	needsRoot(t)
	m, root := New(Options{}), workspace(t)
	for i := range 2 * progressEvery {
		write(t, filepath.Join(root, fmt.Sprint(i)), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan int, 2)
	err := m.SetOwnership(ctx, root, group, corev1.FSGroupChangeOnRootMismatch, func(files int) {
		told <- files
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("changing the group of %s until it was canceled: error %v, want %v", root, err, context.Canceled)
	}
	if call, busy := m.Busy(root); busy {
		t.Errorf("after the interrupted change of %s: still running is %s since %s, want nothing", root, call.Operation,
			call.Since)
	}
	if files := await(t, "progress", told); files != progressEvery {
		t.Errorf("progress of the change of %s: %d files, want %d", root, files, progressEvery)
	}
	_, gid := mode(t, root)
	if gid == group {
		t.Errorf("group of root %s during the change: %d, want it changed last", root, gid)
	}
	// The interrupted call may still change its last file. This call is refused until that has ended.
	for err = errors.New("first"); err != nil; {
		if err = m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeOnRootMismatch, nil); err != nil &&
			!isPending(err) {
			t.Fatalf("changing the group of %s again: error %v, want none or a pending call", root, err)
		}
	}
	for i := range 2 * progressEvery {
		expectMode(t, filepath.Join(root, fmt.Sprint(i)), 0o664, group)
	}
}

func TestAFileThatCannotBeChangedIsAnError(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
	write(t, filepath.Join(source, "file"), "")
	if err := m.Bind(t.Context(), source, target, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.SetOwnership(t.Context(), target, group, corev1.FSGroupChangeAlways, nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("changing the group of read-only %s: error %v, want %v", target, err, syscall.EROFS)
	}
}

func TestAChangeThatHangsIsGivenUpSomeTimeAfterItsContextHasEnded(t *testing.T) {
	needsRoot(t)
	root := workspace(t)
	for i := range progressEvery {
		write(t, filepath.Join(root, fmt.Sprint(i)), "")
	}
	synctest.Test(t, func(t *testing.T) {
		m, released := New(Options{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		err := m.SetOwnership(ctx, root, group, corev1.FSGroupChangeAlways, func(int) {
			cancel()
			<-released
		})
		var pending *PendingError
		if took := time.Since(began); !errors.As(err, &pending) || took != endGrace {
			t.Errorf("changing the owner of %s: error %v after %s, want a *PendingError after %s", root, err, took, endGrace)
		}
		close(released)
		synctest.Wait()
	})
}

// openDescriptors counts those of this process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestManyFilesAreChangedAndNoDescriptorStaysOpen(t *testing.T) {
	needsRoot(t)
	m, root := New(Options{}), workspace(t)
	const dirs, files = 40, 3 * namesAtOnce
	for i := range dirs {
		dir := mkdir(t, root, fmt.Sprint(i%4), fmt.Sprint(i))
		for k := range files {
			write(t, filepath.Join(dir, fmt.Sprint(k)), "")
		}
	}
	before := openDescriptors(t)
	if err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeAlways, nil); err != nil {
		t.Fatal(err)
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("open descriptors after the change of %s: %d, want the %d from before", root, after, before)
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		found++
		if _, gid := mode(t, path); gid != group {
			t.Errorf("group of %s: %d, want %d", path, gid, group)
		}
		return err
	})
	if want := 1 + 4 + dirs + dirs*files; err != nil || found != want {
		t.Errorf("files beneath %s: %d, error %v; want %d", root, found, err, want)
	}
}

func TestADirectoryIsChangedBeforeWhatIsInIt(t *testing.T) {
	needsRoot(t)
	m, root := New(Options{}), workspace(t)
	sub := mkdir(t, root, "sub")
	for i := range progressEvery {
		write(t, filepath.Join(sub, fmt.Sprint(i)), "")
	}
	created := filepath.Join(sub, "created")
	err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeAlways, func(int) { write(t, created, "") })
	if err != nil {
		t.Fatal(err)
	}
	if _, gid := mode(t, created); gid != group {
		t.Errorf("group of %s, created during the change: %d, want %d", created, gid, group)
	}
}

func TestAProgramWithManyNamesKeepsItsSetuid(t *testing.T) {
	needsRoot(t)
	m, root := New(Options{}), workspace(t)
	program := write(t, filepath.Join(root, "program"), "")
	for i := range ownershipHelpers * namesAtOnce {
		if err := os.Link(program, filepath.Join(root, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 { // helpers that find the file half changed are rare
		chmod(t, program, 0o755|fs.ModeSetuid)
		if err := m.SetOwnership(t.Context(), root, int64(group+i), corev1.FSGroupChangeAlways, nil); err != nil {
			t.Fatal(err)
		}
		expectMode(t, program, fs.ModeSetuid|0o775, uint32(group+i))
	}
}

// nest makes directories in each other, one by one: their path is too long.
func nest(t *testing.T, root string, depth int) {
	t.Helper()
	dir, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(dir, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(dir, "d", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(dir); err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	if err := unix.Close(dir); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoriesThatAreNestedTooDeeplyAreAnError(t *testing.T) {
	needsRoot(t)
	for depth, refused := range map[int]bool{deepestDirectory: false, deepestDirectory + 1: true} {
		m, root := New(Options{}), mkdir(t, workspace(t), "root")
		mountAt(t, "tmpfs", root, "tmpfs") // the directories go with it
		nest(t, root, depth)
		before := openDescriptors(t)
		err := m.SetOwnership(t.Context(), root, group, corev1.FSGroupChangeAlways, nil)
		if got := err != nil && strings.Contains(err.Error(), "nested"); got != refused || !refused && err != nil {
			t.Errorf("changing %d directories in each other: error %.300v, want refused %t", depth, err, refused)
		}
		if after := openDescriptors(t); after > before {
			t.Errorf("open descriptors after the change: %d, want the %d from before", after, before)
		}
	}
}
