/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// parseNamed is parse with the programs' names.
func parseNamed(t *testing.T, text string, links Links) *Table {
	t.Helper()
	return newTable(parse(t, text).entries, links)
}

func paths(entries []Entry) []string {
	var found []string
	for _, e := range entries {
		found = append(found, e.Path)
	}
	return found
}

func TestALineIsParsedWithItsEscapes(t *testing.T) {
	table := parse(t, `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 7:3 /a\040b\134c\011d /mnt/with\040space\012line ro,noatime shared:5 master:2 - ext4 /dev/loop\0403 `+
		`rw,context="system_u:object_r:t:s0:c1,c2",errors=continue
`)
	e, ok := table.At("/mnt/with space\nline")
	if !ok {
		t.Fatalf("no mount at the path with a space and a line break, want one of %+v", table.Entries())
	}
	if e.Root != "/a b\\c\td" || e.Source != "/dev/loop 3" || e.Major != 7 || e.Minor != 3 || e.FSType != "ext4" {
		t.Errorf("entry of the path with a space and a line break: %+v, want ext4 of /dev/loop 3 (7:3), unescaped root", e)
	}
	if want := []string{"rw", `context="system_u:object_r:t:s0:c1,c2"`,
		"errors=continue"}; !slices.Equal(e.SuperOptions, want) {
		t.Errorf("super options of %q: %q, want %q", e.Path, e.SuperOptions, want)
	}
	if !e.ReadOnly() {
		t.Errorf("a read-only mount of a writable filesystem: writable, want read-only: %+v", e)
	}
}

func TestAMountOfAnUnlinkedPathShowsTheSame(t *testing.T) {
	table := parse(t, `22 1 254:0 / / rw - ext4 /dev/vda rw
36 22 254:0 /dir//deleted /a rw - ext4 /dev/vda rw
37 22 254:0 /dir/part//deleted /b rw - ext4 /dev/vda rw
38 22 254:0 /dir /c rw - ext4 /dev/vda rw
`)
	a, _ := table.At("/a")
	if got := paths(table.Shares(a)); !slices.Equal(got, []string{"/b", "/c"}) {
		t.Errorf("mounts of an unlinked directory and its parts: %q, want /b and /c", got)
	}
}

func TestAMountWithAnEmptySourceDoesNotSpoilTheTable(t *testing.T) {
	table := parse(t, "22 1 254:0 / / rw - ext4 /dev/vda rw\n37 22 0:50 / /empty rw - tmpfs  rw\n")
	if e, ok := table.At("/empty"); !ok || e.Source != "" || e.FSType != "tmpfs" {
		t.Errorf("entry of /empty: %+v, found %t; want a tmpfs with an empty source", e, ok)
	}
}

func TestAnInvalidLineIsAnError(t *testing.T) {
	for _, line := range []string{"36 22 7:3 / /mnt", "36 22 7 / /mnt rw - ext4 /dev/a rw",
		`36 22 7:3 / /m\9 rw - ext4 /dev/a rw`} {
		if table, err := Parse([]byte(line + "\n")); err == nil {
			t.Errorf("line %q was parsed as %+v, want an error", line, table.Entries())
		}
	}
}

func TestTheTopMostMountIsFoundInAnyOrder(t *testing.T) {
	entries := []Entry{
		{ID: 1, ParentID: 0, Path: "/"},
		{ID: 2, ParentID: 1, Path: "/a", Source: "bottom"},
		{ID: 3, ParentID: 2, Path: "/a", Source: "middle"},
		{ID: 4, ParentID: 3, Path: "/a", Source: "top"},
	}
	for range 2 {
		table := NewTable(slices.Clone(entries))
		if e, ok := table.At("/a/"); !ok || e.Source != "top" {
			t.Errorf("mount at /a: %+v, found %t; want the one with source top", e, ok)
		}
		if n := len(table.All("/a")); n != 3 {
			t.Errorf("%d mounts at /a, want 3", n)
		}
		slices.Reverse(entries)
	}
}

func TestAHiddenMountIsNotReachable(t *testing.T) {
	table := NewTable([]Entry{
		{ID: 1, ParentID: 0, Path: "/"},
		{ID: 2, ParentID: 1, Path: "/kubelet/stage"},
		{ID: 3, ParentID: 2, Path: "/kubelet/stage/inner"},
		{ID: 4, ParentID: 1, Path: "/kubelet"},
		{ID: 5, ParentID: 4, Path: "/kubelet/visible"},
		{ID: 6, ParentID: 1, Path: "/kube"},
	})
	for path, reached := range map[string]bool{
		"/kubelet/stage": false, "/kubelet/stage/inner": false, "/kubelet": true, "/kubelet/visible": true, "/kube": true,
		"/other": false,
	} {
		if _, ok := table.At(path); ok != reached {
			t.Errorf("mount at %s can be reached: %t, want %t", path, ok, reached)
		}
	}
	if n := len(table.All("/kubelet/stage")); n != 1 {
		t.Errorf("%d mounts listed at hidden /kubelet/stage, want 1", n)
	}
}

// A table of which a part is older than the rest may have an ID twice: as it was, and as another mount's.
func TestAMountWhoseParentsHaveNoEndCannotBeReached(t *testing.T) {
	table := NewTable([]Entry{{ID: 1, Path: "/"}, {ID: 100, ParentID: 50, Path: "/x"},
		{ID: 50, ParentID: 100, Path: "/x/y"}})
	for path, reached := range map[string]bool{"/": true, "/x": false, "/x/y": false} {
		if _, ok := table.At(path); ok != reached {
			t.Errorf("mount at %s can be reached: %t, want %t", path, ok, reached)
		}
	}
}

func TestBelowComparesWholePathElements(t *testing.T) {
	table := NewTable([]Entry{{ID: 1, Path: "/"}, {ID: 2, Path: "/a"}, {ID: 3, Path: "/a/b"}, {ID: 4, Path: "/a/b/c"},
		{ID: 5, Path: "/ab"}})
	if got := paths(table.Below("/a")); !slices.Equal(got, []string{"/a/b", "/a/b/c"}) {
		t.Errorf("mounts below /a: %v, want /a/b and /a/b/c", got)
	}
	if got := paths(table.Below("/")); len(got) != 4 {
		t.Errorf("mounts below /: %v, want 4", got)
	}
}

func TestSharesShowAPartOfTheSameFilesystem(t *testing.T) {
	table := NewTable([]Entry{
		{ID: 1, Path: "/stage", Major: 7, Minor: 1, Root: "/", Source: "/dev/loop1"},
		{ID: 2, Path: "/published", Major: 7, Minor: 1, Root: "/", Source: "/dev/loop1"},
		{ID: 3, Path: "/sub", Major: 7, Minor: 1, Root: "/sub", Source: "/dev/loop1"},
		{ID: 4, Path: "/other", Major: 7, Minor: 2, Root: "/", Source: "/dev/loop2"},
	})
	stage, _ := table.At("/stage")
	if got := paths(table.Shares(stage)); !slices.Equal(got, []string{"/published", "/sub"}) {
		t.Errorf("mounts that share with /stage: %v, want /published and /sub", got)
	}
	sub, _ := table.At("/sub")
	if got := paths(table.Shares(sub)); len(got) > 0 {
		t.Errorf("mounts that share with /sub, a part: %v, want none", got)
	}
	if got := paths(table.OfDevice(7, 1)); !slices.Equal(got, []string{"/stage", "/published", "/sub"}) {
		t.Errorf("mounts of device 7:1: %v, want /stage, /published and /sub", got)
	}
}

func TestAPartOfATableKnowsTheOtherRemoteMounts(t *testing.T) {
	table := parse(t, `1 0 8:1 / / rw - ext4 /dev/sda1 rw
3 1 0:5 / /nfs rw - nfs4 server:/ rw
2 1 0:6 / /tmp rw - tmpfs tmpfs rw
`).only(func(e Entry) bool { return e.Path == "/" })
	if got := paths(table.Entries()); !slices.Equal(got, []string{"/"}) {
		t.Errorf("mounts of the part: %v, want / alone", got)
	}
	for id, want := range map[int]bool{1: false, 2: false, 3: true, 4: false} {
		if table.remote(id) != want {
			t.Errorf("mount %d is remote: %t, want %t", id, table.remote(id), want)
		}
	}
}

func TestTheRealMountTableIsParsed(t *testing.T) {
	table, err := New(Options{}).Table()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := table.At("/"); !ok {
		t.Errorf("mount at /: none among %d entries, want one", len(table.Entries()))
	}
}

func TestShownIsWhatABindWouldShow(t *testing.T) {
	table := parse(t, `1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 /lib /var/lib rw - ext4 /dev/sda2 rw
3 2 7:1 / /var/lib/kubelet/stage rw - ext4 /dev/loop1 rw
`)
	for path, want := range map[string]string{
		"/":                             "8:1 /",
		"/srv/data":                     "8:1 /srv/data",
		"/var/lib/kubelet":              "8:2 /lib/kubelet",
		"/var/lib/kubelet/":             "8:2 /lib/kubelet",
		"/var/lib/kubelet/stage":        "7:1 /",
		"/var/lib/kubelet/stage/inside": "7:1 /inside",
	} {
		e, ok := table.Shown(path)
		if got := fmt.Sprintf("%d:%d %s", e.Major, e.Minor, e.Root); !ok || got != want {
			t.Errorf("part of a filesystem that %s shows: %s, want %s", path, got, want)
		}
	}
	stage, _ := table.Shown("/var/lib/kubelet/stage")
	disk, _ := table.Shown("/var/lib/kubelet")
	if bare := (Entry{Major: 8, Minor: 2, Root: "/lib/kubelet/stage"}); !bare.PartOf(disk) || bare.PartOf(stage) ||
		stage.PartOf(disk) {
		t.Errorf("PartOf for directory stage without a mount: of the disk %t, of the mounted stage %t, and the disk has "+
			"the mounted stage as part %t; want true, false, false", bare.PartOf(disk), bare.PartOf(stage), stage.PartOf(disk))
	}
	if (Entry{Major: 8, Minor: 2, Root: "/lib/kubelets"}).PartOf(disk) {
		t.Error("/lib/kubelets is a part of /lib/kubelet, want that only whole path elements count")
	}
	if e, ok := parse(t, "").Shown("/srv"); ok {
		t.Errorf("/srv in an empty table: %+v, want nothing", e)
	}
}

// A user of a volume may move the directory that is mounted into others, as deep as it likes.
func TestAMountOfADirectoryAtAnyDepthIsInTheTable(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	target, sub := mkdir(t, dir, "target"), mkdir(t, dir, "sub")
	inOwnNamespace(t, func() {
		if err := unix.Mount(sub, target, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
			return
		}
		const levels = 300
		name := strings.Repeat("\n", 255) // which the kernel writes as four characters each
		if err := moveDown(sub, dir, name, levels); err != nil {
			t.Error(err)
			return
		}
		table, err := ReadTable("/proc/thread-self/mountinfo")
		if err != nil {
			t.Errorf("reading a table with a mount of a directory below %d others: %.200s, want no error", levels, err)
			return
		}
		e, mounted := table.At(target)
		if want := strings.Repeat("/"+name, levels) + "/sub"; !mounted || !strings.HasSuffix(e.Root, want) {
			t.Errorf("root of the mount at %s has %d bytes, mounted %t; want that it ends with the %d bytes of the directory",
				target, len(e.Root), mounted, len(want))
		}
	})
}

// moveDown moves what is at path below many directories of that name in dir.
func moveDown(path, dir, name string, levels int) error {
	at, err := unix.Open(dir, unix.O_PATH, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(at, name, 0o755)
		}
		below := -1
		if err == nil {
			below, err = unix.Openat(at, name, unix.O_PATH, 0)
		}
		if err = errors.Join(err, unix.Close(at)); err != nil {
			return err
		}
		at = below
	}
	return errors.Join(unix.Renameat(unix.AT_FDCWD, path, at, filepath.Base(path)), unix.Close(at))
}

func TestDirectoriesOfOneNFSServerAreNotTheSame(t *testing.T) {
	table := parse(t, `25 0 254:0 / / rw shared:1 - ext4 /dev/vda rw
52 25 0:32 / /one rw shared:12 - nfs4 10.78.1.2:/srv/v1 rw,vers=4.2
54 25 0:32 / /two rw shared:13 - nfs4 10.78.1.2:/srv/v2 rw,vers=4.2
55 25 0:32 / /bound rw shared:12 - nfs4 10.78.1.2:/srv/v1 rw,vers=4.2
56 25 0:32 / /part rw shared:12 - nfs4 10.78.1.2:/srv/v1/sub rw,vers=4.2
57 25 0:32 / /longer rw shared:12 - nfs4 10.78.1.2:/srv/v11 rw,vers=4.2
`)
	at := func(path string) Entry {
		e, _ := table.At(path)
		return e
	}
	recorded := Entry{Minor: 32, Root: "/"}
	for name, test := range map[string]struct {
		e, other     Entry
		same, partOf bool
	}{
		"another directory":      {at("/two"), at("/one"), false, false},
		"a bind mount":           {at("/bound"), at("/one"), true, true},
		"a part":                 {at("/part"), at("/one"), false, true},
		"the whole of a part":    {at("/one"), at("/part"), false, false},
		"a longer name":          {at("/longer"), at("/one"), false, false},
		"a name that is unknown": {at("/two"), recorded, true, true},
	} {
		same, partOf := test.e.SameSource(test.other), test.e.PartOf(test.other)
		if same != test.same || partOf != test.partOf {
			t.Errorf("%s: the same %t, a part %t, want %t and %t", name, same, partOf, test.same, test.partOf)
		}
	}
	var paths []string
	for _, e := range table.Shares(at("/one")) {
		paths = append(paths, e.Path)
	}
	if !slices.Equal(paths, []string{"/bound", "/part"}) {
		t.Errorf("mounts that share what /one shows: %v, want /bound and /part", paths)
	}
}
