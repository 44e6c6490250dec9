/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/holder"
)

// shown is a directory with a volume at the place db.
type shown struct {
	*Mounter
	t                   *testing.T
	dir, volume, target string
}

func newShown(t *testing.T) shown {
	t.Helper()
	needsRoot(t)
	work := workspace(t)
	s := shown{Mounter: New(Options{}), t: t, dir: mkdir(t, work, "dir"), volume: mkdir(t, work, "volume")}
	s.target = filepath.Join(s.dir, "db")
	mountAt(t, "tmpfs", s.volume, "tmpfs")
	write(t, filepath.Join(s.volume, "file"), "content")
	s.must(s.MakeDirectory(t.Context(), s.dir))
	s.show()
	return s
}

func (s shown) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s shown) show() {
	s.t.Helper()
	s.must(s.MakePlace(s.t.Context(), s.dir, "db"))
	s.must(s.Bind(s.t.Context(), s.volume, s.target, false, nil))
}

// heldBy checks that the volume stays because of the process.
func (s shown) heldBy(p holder.Process, use string) {
	s.t.Helper()
	h := held(s.ClearPlace(s.t.Context(), s.dir, "db"))
	if h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID || !strings.Contains(h.Error(), use) {
		s.t.Errorf("holders of %s: %v, want process %d alone, which %s", s.target, h, p.PID, use)
	}
	if got := read(s.t, filepath.Join(s.target, "file")); got != "content" {
		s.t.Errorf("file at %s after a refused removal: %q, want that of the volume", s.target, got)
	}
}

// cleared takes the volume away, and waits for the kernel, which removes the mounts of an ended process asynchronously.
func (s shown) cleared() {
	s.t.Helper()
	err := s.ClearPlace(s.t.Context(), s.dir, "db")
	for s.t.Context().Err() == nil && held(err) != nil {
		err = s.ClearPlace(s.t.Context(), s.dir, "db")
	}
	s.must(err)
	if _, err := os.Lstat(s.target); !errors.Is(err, unix.ENOENT) {
		s.t.Errorf("place %s: error %v, want that it is gone", s.target, err)
	}
}

func inside(p holder.Process, path string) string { return fmt.Sprintf("/proc/%d/root%s", p.PID, path) }

func TestADirectoryHasNothingButItsPlaces(t *testing.T) {
	s := newShown(t)
	s.must(s.MakeDirectory(t.Context(), s.dir))
	s.show()
	table, err := s.Table()
	s.must(err)
	e, mounted := table.At(s.dir)
	if !mounted || !e.IsDirectory() || !e.ReadOnly() || e.PeerGroup == 0 || len(table.All(s.dir)) != 1 {
		t.Errorf("mount at %s: %+v, want one directory that is read-only and shared", s.dir, e)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing a file into %s: error %v, want %v", s.dir, err, unix.EROFS)
	}
	if err := os.Symlink("/etc", filepath.Join(s.dir, "link")); !errors.Is(err, unix.EROFS) {
		t.Errorf("laying a link in %s: error %v, want %v", s.dir, err, unix.EROFS)
	}
	for _, name := range []string{"", ".", "..", "a/b"} {
		if err := s.MakePlace(t.Context(), s.dir, name); !errors.Is(err, ErrSubPath) {
			t.Errorf("making place %q: error %v, want %v", name, err, ErrSubPath)
		}
	}
	s.cleared()
	s.cleared()
	s.must(s.Unmount(t.Context(), s.dir))
	if err := s.MakePlace(t.Context(), s.dir, "db"); !errors.Is(err, ErrNotMounted) {
		t.Errorf("making a place where the directory is gone: error %v, want %v", err, ErrNotMounted)
	}
	s.must(s.ClearPlace(t.Context(), s.dir, "db"))
}

func TestALinkAtAPlaceLeadsNowhere(t *testing.T) {
	s := newShown(t)
	s.cleared()
	s.must(changeWritable(s.dir, func(fd int) error { return unix.Symlinkat("/etc", fd, "db") }))
	if err := s.MakePlace(t.Context(), s.dir, "db"); !errors.Is(err, ErrOccupied) {
		t.Errorf("making a place where a link is: error %v, want %v", err, ErrOccupied)
	}
	if err := s.Bind(t.Context(), s.volume, s.target, false, nil); err == nil {
		t.Error("binding at a link: no error, want that it is refused")
	}
	if err := s.ClearPlace(t.Context(), s.dir, "db"); !errors.Is(err, ErrOccupied) {
		t.Errorf("removing a place where a link is: error %v, want %v", err, ErrOccupied)
	}
}

func TestAContainerThatReceivesMountsSeesAVolumeComeAndGo(t *testing.T) {
	s := newShown(t)
	p := holder.Receiver(t, "true")
	if got := read(t, inside(p, s.target+"/file")); got != "content" {
		t.Errorf("file in the container: %q, want that of the volume", got)
	}
	s.cleared()
	if _, err := os.Lstat(inside(p, s.target)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("place in the container: error %v, want that it is gone", err)
	}
	s.show()
	if got := read(t, inside(p, s.target+"/file")); got != "content" {
		t.Errorf("file in the container after it has come again: %q, want that of the volume", got)
	}
}

func TestAVolumeThatAContainerUsesIsNotTakenOutOfItsDirectory(t *testing.T) {
	for name, c := range map[string]struct{ script, use string }{
		"an open file":                 {"exec 7<%s/file", "open"},
		"a file open for writing":      {"exec 7>>%s/file", "open"},
		"a directory that it works in": {"cd %s", "as its directory"},
		"a mount of its own on it":     {"mkdir %[1]s/own; mount -t tmpfs none %[1]s/own", "has a copy of it mounted"},
		"a copy that follows no change": {"mkdir %[1]s/../../copy; mount --rbind --make-rprivate %[1]s/.. " +
			"%[1]s/../../copy", "copy"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			p := holder.Receiver(t, fmt.Sprintf(c.script, s.target))
			s.heldBy(p, c.use)
			s.heldBy(p, c.use)
			p.End()
			s.cleared()
		})
	}
}
