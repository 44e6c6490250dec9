/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/mount/statmount"
)

// threadMountInfo is the mount table of this thread, which may have a mount namespace of its own.
func threadMountInfo() string { return fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid()) }

// mountChange is something that changes the mount table, and whether it changes a mount that was there before.
type mountChange struct {
	name   string
	change func() error
	inside bool
}

func mountChanges(t *testing.T, dir string) []mountChange {
	a, b, other := mkdir(t, dir, "a b\\"), mkdir(t, dir, "b"), mkdir(t, dir, "other")
	return []mountChange{
		{"a filesystem", func() error {
			return unix.Mount("source with space", a, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=1m,mode=700")
		}, false},
		{"a bind mount of a part", func() error {
			return cmp.Or(os.Mkdir(filepath.Join(a, "part"), 0o755),
				unix.Mount(filepath.Join(a, "part"), b, "", unix.MS_BIND, ""))
		}, false},
		{"a mount on a mount", func() error { return unix.Mount(dir, b, "", unix.MS_BIND|unix.MS_REC, "") }, false},
		{"a read-only mount", func() error {
			return unix.Mount("", a, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOATIME, "")
		}, true},
		{"a read-only filesystem", func() error { return unix.Mount("", a, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") }, true},
		{"a shared mount", func() error { return unix.Mount("", a, "", unix.MS_SHARED, "") }, true},
		{"a slave", func() error { return unix.Mount("", a, "", unix.MS_SLAVE, "") }, true},
		{"a moved mount", func() error {
			return cmp.Or(unix.Mount("", a, "", unix.MS_PRIVATE, ""), unix.Mount(a, other, "", unix.MS_MOVE, ""))
		}, true},
		{"an unmount", func() error { return unix.Unmount(b, unix.MNT_DETACH) }, false},
		{"another unmount", func() error { return unix.Unmount(other, unix.MNT_DETACH) }, false},
	}
}

func byNumber(t *Table) []Entry {
	return slices.SortedFunc(slices.Values(t.Entries()), func(a, b Entry) int { return a.ID - b.ID })
}

func tableOf(t *testing.T, read func() (*Table, error)) []Entry {
	t.Helper()
	table, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return byNumber(table)
}

func TestTheTableIsAlwaysThatOfNow(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	inOwnNamespace(t, func() {
		m := New(Options{MountInfo: threadMountInfo()})
		for _, c := range mountChanges(t, dir) {
			tableOf(t, m.Table)
			if err := c.change(); err != nil {
				t.Fatalf("making %s: %v", c.name, err)
			}
			want := tableOf(t, func() (*Table, error) { return ReadTable(threadMountInfo()) })
			if got := tableOf(t, m.Table); !reflect.DeepEqual(got, want) {
				t.Errorf("table after %s:\n%+v\nwant\n%+v", c.name, got, want)
			}
		}
	})
}

// needsSingleMounts skips a test where the kernel does not show mounts by themselves, and names it in the output.
func needsSingleMounts(t *testing.T) {
	t.Helper()
	n, err := statmount.Of(SelfMountInfo)
	if err == nil {
		var ids []statmount.ID
		if ids, err = n.List(nil); err == nil {
			_, err = n.Get(ids[0])
		}
	}
	if err != nil {
		t.Skipf("LEFT OUT (needs Linux 6.13: %v): %s", err, t.Name())
	}
}

func TestWhatIsKnownOfMountsIsExactAboutWhichThereAre(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	dir := workspace(t)
	inOwnNamespace(t, func() {
		m := New(Options{MountInfo: threadMountInfo()})
		known := func() (*Table, error) { return m.TableWithin(time.Hour) }
		tableOf(t, known)
		if k := &m.tables.known; !k.shown || k.refused {
			t.Fatalf("the kernel's calls show what the mount table has: %t, refused %t; want it", k.shown, k.refused)
		}
		for _, c := range mountChanges(t, dir) {
			if err := c.change(); err != nil {
				t.Fatalf("making %s: %v", c.name, err)
			}
			want := tableOf(t, func() (*Table, error) { return ReadTable(threadMountInfo()) })
			got := tableOf(t, known)
			ids := func(all []Entry) (ids []int) {
				for _, e := range all {
					ids = append(ids, e.ID)
				}
				return ids
			}
			if !slices.Equal(ids(got), ids(want)) || !c.inside && !sameNew(got, want) {
				t.Errorf("known after %s:\n%+v\nwant\n%+v", c.name, got, want)
			}
			if got := tableOf(t, func() (*Table, error) { return m.TableWithin(0) }); !reflect.DeepEqual(got, want) {
				t.Errorf("table of this moment after %s:\n%+v\nwant\n%+v", c.name, got, want)
			}
		}
	})
}

func TestOneMountIsKnownAsItIsNow(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	inOwnNamespace(t, func() {
		m := New(Options{MountInfo: threadMountInfo()})
		for _, c := range mountChanges(t, dir) {
			tableOf(t, func() (*Table, error) { return m.TableWithin(time.Hour) })
			if err := c.change(); err != nil {
				t.Fatalf("making %s: %v", c.name, err)
			}
			table, err := ReadTable(threadMountInfo())
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{filepath.Join(dir, "a b\\"), filepath.Join(dir, "b"), filepath.Join(dir, "other")} {
				want, expected := table.At(path)
				got, mounted, err := m.at(path)
				if err != nil || mounted != expected || !reflect.DeepEqual(got, want) {
					t.Errorf("mount at %s after %s: %+v, %t, error %v; want %+v, %t", path, c.name, got, mounted, err, want,
						expected)
				}
			}
		}
	})
}

// sameNew compares the newest mount.
func sameNew(got, want []Entry) bool { return reflect.DeepEqual(got[len(got)-1], want[len(want)-1]) }

func TestWithoutTheKernelsCallsATableIsReadOnceUntilAMountChanges(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	inOwnNamespace(t, func() {
		m := New(Options{MountInfo: threadMountInfo()})
		m.tables.known.refused = true
		known := func() (*Table, error) { return m.TableWithin(time.Hour) }
		for _, c := range mountChanges(t, dir) {
			first, err := known()
			if again, failed := known(); err != nil || failed != nil || again != first {
				t.Errorf("table before %s: another one when asked again, errors %v, %v; want the same", c.name, err, failed)
			}
			if err := c.change(); err != nil {
				t.Fatalf("making %s: %v", c.name, err)
			}
			want := tableOf(t, func() (*Table, error) { return ReadTable(threadMountInfo()) })
			if got := tableOf(t, known); !c.inside && !reflect.DeepEqual(got, want) {
				t.Errorf("table after %s:\n%+v\nwant\n%+v", c.name, got, want)
			}
			if got := tableOf(t, m.Table); !reflect.DeepEqual(got, want) {
				t.Errorf("table of this moment after %s:\n%+v\nwant\n%+v", c.name, got, want)
			}
		}
	})
}

func TestTheKernelsCallsAreGivenUpIfTheyShowSomethingElse(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	dir := workspace(t)
	// A table that is a plain file stays as it is, while the calls show what is mounted.
	write(t, filepath.Join(dir, "mountinfo"), "1 1 0:1 / / rw - tmpfs tmpfs rw\n")
	m := New(Options{MountInfo: filepath.Join(dir, "mountinfo")})
	if k := &m.tables.known; !k.usable(SelfMountInfo) {
		t.Fatal("the kernel's calls are refused, want them tried")
	}
	for range attemptsToShow {
		table, err := m.TableWithin(time.Hour)
		if err != nil || len(table.Entries()) != 1 {
			t.Fatalf("table of a file with one mount: %v, error %v; want that mount", table.Entries(), err)
		}
	}
	if k := &m.tables.known; !k.refused || k.shown {
		t.Errorf("the calls are refused: %t, trusted: %t; want them refused", k.refused, k.shown)
	}
}
