/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyTheRootOfAMountIsOpened(t *testing.T) {
	m, dir, source, target := bindFixture(t)
	link := filepath.Join(dir, "link")
	if err := errors.Join(m.Bind(t.Context(), source, target, false, nil), os.Symlink(target, link),
		os.Mkdir(filepath.Join(source, "inside"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{source, filepath.Join(target, "inside"), link} {
		if _, err := m.OpenMount(t.Context(), path); !errors.Is(err, ErrNotMounted) {
			t.Errorf("opening %s: error %v, want %v", path, err, ErrNotMounted)
		}
	}
	opened, err := m.OpenMount(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close() //nolint:errcheck // only bound
	// What was opened stays the mount, also once the path is a bare directory.
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(target, "file"), "bare")
	second := mkdir(t, dir, "second")
	if err := m.BindFile(t.Context(), opened, second, true, nil); err == nil {
		if got := read(t, filepath.Join(second, "file")); got != "content" {
			t.Errorf("bind of what was opened shows %q, want the content of the mount", got)
		}
	}
	if _, err := m.OpenMount(t.Context(), target); !errors.Is(err, ErrNotMounted) {
		t.Errorf("opening %s without its mount: error %v, want %v", target, err, ErrNotMounted)
	}
}
