/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"fmt"
	"slices"
	"testing"
)

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
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
		t.Fatalf("not found in %+v", table.Entries())
	}
	if e.Root != "/a b\\c\td" || e.Source != "/dev/loop 3" || e.Major != 7 || e.Minor != 3 || e.FSType != "ext4" {
		t.Errorf("entry: %+v", e)
	}
	if want := []string{"rw", `context="system_u:object_r:t:s0:c1,c2"`,
		"errors=continue"}; !slices.Equal(e.SuperOptions, want) {
		t.Errorf("super options: %q", e.SuperOptions)
	}
	if !e.ReadOnly() {
		t.Error("a read-only mount of a writable filesystem counts as writable")
	}
}

func TestAMountWithAnEmptySourceDoesNotSpoilTheTable(t *testing.T) {
	table := parse(t, "22 1 254:0 / / rw - ext4 /dev/vda rw\n37 22 0:50 / /empty rw - tmpfs  rw\n")
	if e, ok := table.At("/empty"); !ok || e.Source != "" || e.FSType != "tmpfs" {
		t.Errorf("entry: %+v, %v", e, ok)
	}
}

func TestAnInvalidLineIsAnError(t *testing.T) {
	for _, line := range []string{"36 22 7:3 / /mnt", "36 22 7 / /mnt rw - ext4 /dev/a rw",
		`36 22 7:3 / /m\9 rw - ext4 /dev/a rw`} {
		if table, err := Parse([]byte(line + "\n")); err == nil {
			t.Errorf("%q was read as %+v", line, table.Entries())
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
			t.Errorf("found %+v, %v", e, ok)
		}
		if n := len(table.All("/a")); n != 3 {
			t.Errorf("%d mounts at the path", n)
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
			t.Errorf("%s reachable: %v", path, ok)
		}
	}
	if n := len(table.All("/kubelet/stage")); n != 1 {
		t.Errorf("the hidden mount is not listed: %d", n)
	}
}

func TestBelowComparesWholePathElements(t *testing.T) {
	table := NewTable([]Entry{{ID: 1, Path: "/"}, {ID: 2, Path: "/a"}, {ID: 3, Path: "/a/b"}, {ID: 4, Path: "/a/b/c"},
		{ID: 5, Path: "/ab"}})
	if got := paths(table.Below("/a")); !slices.Equal(got, []string{"/a/b", "/a/b/c"}) {
		t.Errorf("below /a: %v", got)
	}
	if got := paths(table.Below("/")); len(got) != 4 {
		t.Errorf("below /: %v", got)
	}
}

func TestReferencesShowTheSamePartOfTheSameFilesystem(t *testing.T) {
	table := NewTable([]Entry{
		{ID: 1, Path: "/stage", Major: 7, Minor: 1, Root: "/", Source: "/dev/loop1"},
		{ID: 2, Path: "/published", Major: 7, Minor: 1, Root: "/", Source: "/dev/loop1"},
		{ID: 3, Path: "/sub", Major: 7, Minor: 1, Root: "/sub", Source: "/dev/loop1"},
		{ID: 4, Path: "/other", Major: 7, Minor: 2, Root: "/", Source: "/dev/loop2"},
	})
	stage, _ := table.At("/stage")
	if got := paths(table.References(stage)); !slices.Equal(got, []string{"/published"}) {
		t.Errorf("references: %v", got)
	}
	if got := paths(table.Shares(stage)); !slices.Equal(got, []string{"/published", "/sub"}) {
		t.Errorf("shares: %v", got)
	}
	sub, _ := table.At("/sub")
	if got := paths(table.Shares(sub)); len(got) > 0 {
		t.Errorf("shares of a part: %v", got)
	}
	if got := paths(table.OfDevice(7, 1)); !slices.Equal(got, []string{"/stage", "/published", "/sub"}) {
		t.Errorf("of the device: %v", got)
	}
	if got := paths(table.OfSource("/dev/loop2")); !slices.Equal(got, []string{"/other"}) {
		t.Errorf("of the source: %v", got)
	}
}

func TestTheRealMountTableIsParsed(t *testing.T) {
	table, err := New(Options{}).Table()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := table.At("/"); !ok {
		t.Errorf("no root in %d entries", len(table.Entries()))
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
			t.Errorf("%s shows %s, want %s", path, got, want)
		}
	}
	stage, _ := table.Shown("/var/lib/kubelet/stage")
	disk, _ := table.Shown("/var/lib/kubelet")
	if bare := (Entry{Major: 8, Minor: 2, Root: "/lib/kubelet/stage"}); !bare.PartOf(disk) || bare.PartOf(stage) ||
		stage.PartOf(disk) {
		t.Error("PartOf is wrong for a directory without a mount")
	}
	if (Entry{Major: 8, Minor: 2, Root: "/lib/kubelets"}).PartOf(disk) {
		t.Error("a directory with the same prefix in its name is part of another")
	}
	if e, ok := parse(t, "").Shown("/srv"); ok {
		t.Errorf("an empty table shows %+v", e)
	}
}
