/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
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
				_, got, mounted, err := m.At(path)
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

// randomMounts makes random changes of mounts in a directory.
type randomMounts struct {
	*rand.Rand
	dirs []string
}

// change makes one change. Many are refused by the kernel, as they may be.
func (r *randomMounts) change() {
	a, b := r.dirs[r.IntN(len(r.dirs))], r.dirs[r.IntN(len(r.dirs))]
	propagation := []uintptr{unix.MS_SHARED, unix.MS_PRIVATE, unix.MS_SLAVE, unix.MS_UNBINDABLE}
	changes := []func() error{
		func() error { return unix.Mount("none", a, "tmpfs", 0, "size=64k") },
		func() error { return unix.Mount(a, b, "", unix.MS_BIND, "") },
		func() error { return unix.Mount(a, b, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return unix.Mount(a, b, "", unix.MS_MOVE, "") },
		func() error { return unix.Mount("", a, "", propagation[r.IntN(len(propagation))], "") },
		func() error { return unix.Mount("", a, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") },
		func() error { return unix.Mount("", a, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Unmount(a, 0) },
		func() error { return unix.Unmount(a, unix.MNT_DETACH) },
		func() error { return beneath(a, b) },
		func() error { return os.Rename(a, b+"-renamed") },
		func() error { return os.RemoveAll(filepath.Join(a, "part\n//deleted")) },
	}
	_ = changes[r.IntN(len(changes))]()
	_ = os.MkdirAll(filepath.Join(a, "part\n//deleted"), 0o700)
}

// beneath mounts a bind mount of source beneath the one at target, which gets another parent by that.
func beneath(source, target string) error {
	clone, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	return errors.Join(unix.MoveMount(clone, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|0x200),
		unix.Close(clone))
}

func newRandomMounts(t *testing.T, seed uint64) *randomMounts {
	t.Helper()
	dir := workspace(t)
	if err := cmp.Or(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), unix.Mount("", dir, "", unix.MS_SHARED, "")); err != nil {
		t.Fatal(err)
	}
	r := &randomMounts{Rand: rand.New(rand.NewPCG(seed, 0))}
	for _, name := range []string{"a", "a/b", "c d", "c d/e\\040", "f", "f/g/h", "f/part\n//deleted"} {
		r.dirs = append(r.dirs, mkdir(t, dir, name))
	}
	return r
}

// propertyOps is how many changes each of propertyRuns sequences has, unless they make more than propertyMounts: a
// recursive bind mount may double them.
const propertyRuns, propertyOps, propertyMounts = 8, 40, 500

// The mount table of the file is what the others are compared with. Nothing else changes this mount namespace.
func TestAfterAnyChangesTheKernelsCallsShowWhatTheFileHas(t *testing.T) {
	needsRoot(t)
	needsSingleMounts(t)
	for seed := range uint64(propertyRuns) {
		inOwnNamespace(t, func() {
			r, m := newRandomMounts(t, seed), New(Options{MountInfo: threadMountInfo()})
			tableOf(t, func() (*Table, error) { return m.TableWithin(time.Hour) })
			if !m.tables.known.trusted() {
				t.Fatal("the kernel's calls are not trusted, want them compared and used")
			}
			for op := range propertyOps {
				for range 1 + r.IntN(3) {
					r.change()
				}
				same, mounts := compareTables(t, m, r.dirs, r.IntN(4) == 0)
				if !same {
					t.Fatalf("seed %d, change %d: the tables differ", seed, op)
				}
				if mounts > propertyMounts {
					break
				}
			}
			if !m.tables.known.trusted() {
				t.Errorf("seed %d: the kernel's calls were given up, want them used", seed)
			}
		})
	}
}

// compareTables compares what is known with the file: which mounts there are, what is at each path, and at times all of
// them as they are now, after which no older ones are known.
func compareTables(t *testing.T, m *Mounter, paths []string, all bool) (same bool, mounts int) {
	t.Helper()
	now, err := ReadTable(threadMountInfo())
	if err != nil {
		t.Fatal(err)
	}
	ids := func(all []Entry) (ids []int) {
		for _, e := range all {
			ids = append(ids, e.ID)
		}
		return ids
	}
	want, same := byNumber(now), true
	if got := tableOf(t, func() (*Table, error) { return m.TableWithin(time.Hour) }); !slices.Equal(ids(got), ids(want)) {
		t.Errorf("mounts that are known:\n%+v\nwant\n%+v", got, want)
		same = false
	}
	for _, path := range paths {
		_, e, mounted, err := m.At(path)
		if err != nil {
			t.Fatal(err)
		}
		// What another mount hides since a moment may seem to be reachable still. Nothing that is mounted seems not to be.
		if _, want := now.At(path); want && !mounted || mounted && !containsEntry(now.All(path), e) {
			t.Errorf("at %q: %+v, %t; want %t and one of\n%+v", path, e, mounted, want, now.All(path))
			same = false
		}
	}
	if !all {
		return same, len(want)
	}
	if got := tableOf(t, func() (*Table, error) { return m.TableWithin(0) }); !reflect.DeepEqual(got, want) {
		t.Errorf("all as they are now:\n%+v\nwant\n%+v", got, want)
		same = false
	}
	return same, len(want)
}

func containsEntry(all []Entry, e Entry) bool {
	return slices.ContainsFunc(all, func(o Entry) bool { return reflect.DeepEqual(o, e) })
}
