/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trustedMounter knows the mounts of this thread's mount namespace one by one.
func trustedMounter(t *testing.T) *Mounter {
	t.Helper()
	m := New(Options{MountInfo: threadMountInfo()})
	if _, err := m.TableWithin(time.Hour); err != nil || !m.tables.known.trusted() {
		t.Fatalf("the kernel's calls are trusted: %t, error %v; want them used", m.tables.known.trusted(), err)
	}
	return m
}

func mountMemory(t *testing.T, source, path string) {
	t.Helper()
	if err := unix.Mount(source, path, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
}

// reachable is what is mounted at the path; the zero value for nothing.
func reachable(t *testing.T, m *Mounter, path string) Entry {
	t.Helper()
	_, e, _, err := m.At(path)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAMountThatWasMovedOntoAnotherIsTheOneThatIsReachable(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	dir := workspace(t)
	inOwnNamespace(t, func() {
		elsewhere, path := mkdir(t, dir, "elsewhere"), mkdir(t, dir, "path")
		mountMemory(t, "above", elsewhere)
		mountMemory(t, "below", path)
		m := trustedMounter(t)
		if err := unix.Mount(elsewhere, path, "", unix.MS_MOVE, ""); err != nil {
			t.Fatal(err)
		}
		if e := reachable(t, m, path); e.Source != "above" {
			t.Errorf("mounted at %s: %+v, want what was moved there", path, e)
		}
	})
}

func TestAnotherMountWithTheNumberOfAnEarlierOneIsNotTakenForIt(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	path := workspace(t)
	inOwnNamespace(t, func() {
		mountMemory(t, "memory", path)
		m := trustedMounter(t)
		e := reachable(t, m, path)
		device, root := e, e
		device.Minor++
		root.Root = "/part"
		for _, earlier := range []Entry{device, root} {
			if now, known := m.tables.known.again(earlier); known {
				t.Errorf("%+v is taken for %+v", now, earlier)
			}
		}
		if now, known := m.tables.known.again(e); !known || !reflect.DeepEqual(now, e) {
			t.Errorf("the mount itself: %+v, known %t; want %+v", now, known, e)
		}
	})
}

// refuseCalls has the kernel answer these calls of this thread with the error, as an older kernel or the seccomp
// profile of a container does. It cannot be undone: the thread has to end.
func refuseCalls(t *testing.T, answer unix.Errno, calls ...uint32) {
	t.Helper()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	for _, call := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(answer)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhereTheKernelsCallsAreRefusedTheTableIsRead(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	both := []uint32{unix.SYS_LISTMOUNT, unix.SYS_STATMOUNT}
	for name, test := range map[string]struct {
		answer  unix.Errno
		calls   []uint32
		trusted bool
	}{
		"a kernel without them":                {answer: unix.ENOSYS, calls: both},
		"seccomp":                              {answer: unix.EPERM, calls: both},
		"seccomp, only single mounts":          {answer: unix.EPERM, calls: []uint32{unix.SYS_STATMOUNT}},
		"seccomp, the list, after it was used": {answer: unix.EPERM, calls: []uint32{unix.SYS_LISTMOUNT}, trusted: true},
		"seccomp, single mounts, after it was used": {answer: unix.EPERM, calls: []uint32{unix.SYS_STATMOUNT},
			trusted: true},
	} {
		dir := workspace(t)
		inOwnNamespace(t, func() {
			before, after := mkdir(t, dir, "before\n"), mkdir(t, dir, "after")
			mountMemory(t, "before", before)
			m := New(Options{MountInfo: threadMountInfo()})
			if test.trusted {
				m = trustedMounter(t)
			}
			refuseCalls(t, test.answer, test.calls...)
			for path, source := range map[string]string{before: "before", after: ""} {
				if e := reachable(t, m, path); e.Source != source {
					t.Errorf("%s: mounted at %q: %+v, want %q", name, path, e, source)
				}
			}
			mountMemory(t, "after", after)
			if err := unix.Unmount(before, 0); err != nil {
				t.Fatal(err)
			}
			for path, source := range map[string]string{before: "", after: "after"} {
				if e := reachable(t, m, path); e.Source != source {
					t.Errorf("%s: mounted at %q after a change: %+v, want %q", name, path, e, source)
				}
			}
			want := tableOf(t, func() (*Table, error) { return ReadTable(threadMountInfo()) })
			if got := tableOf(t, func() (*Table, error) { return m.TableWithin(time.Hour) }); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: table:\n%+v\nwant\n%+v", name, got, want)
			}
			if m.tables.known.trusted() {
				t.Errorf("%s: the kernel's calls are trusted still", name)
			}
		})
	}
}
