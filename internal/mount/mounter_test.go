/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// isPending reports whether a call goes on whose end is not known.
func isPending(err error) bool {
	var pending *PendingError
	return errors.As(err, &pending)
}

func TestACallWhoseCallerGaveUpKeepsItsPathBusy(t *testing.T) {
	m := New(Options{})
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	entered := make(chan struct{})
	go func() {
		<-entered
		cancel()
	}()
	err := m.run(ctx, changes, "unmount", "/stuck", func() error {
		close(entered)
		<-release
		return nil
	})
	var pending *PendingError
	if !errors.As(err, &pending) || !errors.Is(err, context.Canceled) || pending.Call.Operation != "unmount" {
		t.Fatalf("unmounting /stuck after its caller gave up: error %v, want a PendingError of unmount, canceled", err)
	}
	if call, ok := m.Busy("/stuck/"); !ok || call.Path != "/stuck" {
		t.Errorf("call that is busy at /stuck: %+v, found %t; want one of /stuck", call, ok)
	}
	err = m.run(t.Context(), changes, "bind", "/stuck", func() error { panic("must not run") })
	var refused *PendingError
	if !errors.As(err, &refused) || refused.Err != nil {
		t.Errorf("binding at busy path /stuck: error %v, want a PendingError", err)
	}
	if err := m.run(t.Context(), changes, "bind", "/free", func() error { return nil }); err != nil {
		t.Errorf("binding at /free while /stuck is busy: error %v, want none", err)
	}
	if err := m.run(t.Context(), reads, "usage lookup", "/stuck", func() error { return nil }); err != nil {
		t.Errorf("reading the usage of busy path /stuck: error %v, want none", err)
	}
	close(release)
	<-pending.Ended
	<-refused.Ended
	if _, ok := m.Busy("/stuck"); ok {
		t.Error("/stuck is busy after its call ended, want it free")
	}
}

func TestASecondCallWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		release, order := make(chan struct{}), make(chan string, 2)
		first := func() error { <-release; order <- "first"; return nil }
		errs := make(chan error, 2)
		go func() { errs <- m.run(t.Context(), changes, "bind", "/path", first) }()
		synctest.Wait()
		go func() {
			errs <- m.run(t.Context(), changes, "bind", "/path", func() error { order <- "second"; return nil })
		}()
		synctest.Wait()
		close(release)
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Fatal(err)
		}
		if a, b := <-order, <-order; a != "first" || b != "second" {
			t.Errorf("order of two calls at /path: %s, %s; want first, second", a, b)
		}
	})
}

func TestACallWithAnEndedContextDoesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := New(Options{}).run(ctx, changes, "bind", "/path", func() error { panic("must not run") })
	if !errors.Is(err, context.Canceled) || isPending(err) {
		t.Errorf("binding with an ended context: error %v, want %v and no pending call", err, context.Canceled)
	}
}

// A FUSE filesystem without a server hangs like a dead NFS server.
func TestAFilesystemThatHangsDelaysNothingElse(t *testing.T) {
	needsRoot(t)
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("LEFT OUT (needs fuse): %v", err)
	}
	dir := workspace(t)
	stuck, free := mkdir(t, dir, "stuck"), mkdir(t, dir, "free")
	if err := unix.Mount("dead", stuck, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		t.Fatal(err)
	}
	m := New(Options{})
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout/100)
	defer cancel()
	if _, err := m.Usage(ctx, stuck); !isPending(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("usage of dead filesystem %s: error %v, want a PendingError past its deadline", stuck, err)
	}
	if calls := m.Running(); len(calls) != 1 || calls[0].Path != stuck {
		t.Errorf("running calls: %+v, want one at %s", calls, stuck)
	}
	if _, err := m.Usage(t.Context(), free); err != nil {
		t.Errorf("usage of %s while %s hangs: error %v, want none", free, stuck, err)
	}
	if err := m.EnsureDir(t.Context(), stuck, 0o755); err != nil {
		t.Errorf("checking that the mount point exists: %v", err)
	}
	if err := unix.Unmount(stuck, unix.MNT_DETACH); err != nil {
		t.Errorf("unmounting the dead filesystem: %v", err)
	}
	if err := unix.Close(fuse); err != nil {
		t.Fatal(err)
	}
	for len(m.Running()) != 0 { // the kernel fails the call once the server has ended
		if _, err := m.Usage(t.Context(), stuck); err != nil && !isPending(err) {
			t.Fatalf("usage of dead filesystem %s: error %v, want none or a PendingError", stuck, err)
		}
	}
	if _, err := os.ReadDir(stuck); err != nil {
		t.Error(err)
	}
}
