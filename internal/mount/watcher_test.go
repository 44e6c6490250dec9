/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const waitTimeout = 10 * time.Second

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitTimeout):
		t.Fatalf("%s did not come within %s, want it", what, waitTimeout)
		panic("unreachable")
	}
}

func startWatcher(t *testing.T) (*Watcher, context.CancelFunc, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := New(Options{}).NewWatcher()
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	return w, cancel, done
}

func TestTheWatcherSignalsItsStartAndEndsWithItsContext(t *testing.T) {
	w, cancel, done := startWatcher(t)
	await(t, "the first signal", w.Changes())
	cancel()
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
}

func TestTheWatcherClosesItsDescriptors(t *testing.T) {
	before := descriptors(t)
	for range 20 {
		w, cancel, done := startWatcher(t)
		await(t, "the first signal", w.Changes())
		cancel()
		if err := await(t, "the end", done); err != nil {
			t.Fatal(err)
		}
	}
	// Other descriptors of the process may come and go, but not twenty times two.
	if after := descriptors(t); after >= before+20 {
		t.Errorf("descriptors: %d before 20 watchers, %d after them; want less than 20 more", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAWatcherWithoutATableFails(t *testing.T) {
	if err := NewWatcher(filepath.Join(t.TempDir(), "none")).Start(t.Context()); err == nil {
		t.Error("watcher of an absent table: no error, want one")
	}
}

func TestTheWatcherSignalsEachMountAndUnmount(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	m := New(Options{})
	w, _, _ := startWatcher(t)
	await(t, "the first signal", w.Changes())

	target := mkdir(t, dir, "target")
	for range 20 {
		mountAt(t, "tmpfs", target, "tmpfs")
		awaitTable(t, m, w, func(table *Table) bool { _, ok := table.At(target); return ok })
		if err := m.Unmount(t.Context(), target); err != nil {
			t.Fatal(err)
		}
		awaitTable(t, m, w, func(table *Table) bool { _, ok := table.At(target); return !ok })
	}
}

// awaitTable reads the table only after signals. Other programs on the machine mount too.
func awaitTable(t *testing.T, m *Mounter, w *Watcher, good func(*Table) bool) {
	t.Helper()
	for {
		await(t, "the change", w.Changes())
		table, err := m.Table()
		if err != nil {
			t.Fatal(err)
		}
		if good(table) {
			return
		}
	}
}
