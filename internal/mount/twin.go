/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"path/filepath"
	"slices"
	"strings"
)

// Where one directory is at two paths whose mounts share changes (/var/lib/kubelet, bound from a data disk), the kernel
// mounts everything at both. The unmount of one ends the other too, and fails while the other is in use. So the other
// one is no use of its own.

// Twin reports whether the kernel made one of the mounts as the copy of the other, and ends it with the other. Both
// show the same and share changes. They are on the same directory, of two mounts that share changes themselves. A bind
// mount of the same elsewhere is on another directory: it is a use.
func (t *Table) Twin(a, b Entry) bool {
	over, known := t.parent(a)
	other, also := t.parent(b)
	return known && also && over.ID != other.ID && a.peer(b) && over.peer(other) && a.SameSource(b) &&
		t.mountPoint(a, over) == t.mountPoint(b, other)
}

// peer reports whether the mounts share changes in both directions.
func (e Entry) peer(other Entry) bool {
	return e.PeerGroup != 0 && e.PeerGroup == other.PeerGroup && e.Major == other.Major && e.Minor == other.Minor
}

// parent is the mount that e is mounted on.
func (t *Table) parent(e Entry) (Entry, bool) {
	i, known := t.number(e.ParentID)
	if !known || e.ParentID == e.ID {
		return Entry{}, false
	}
	return t.entries[i], true
}

// mountPoint is the directory that e is mounted on, within the filesystem of its parent.
func (t *Table) mountPoint(e, parent Entry) string {
	return filepath.Join(parent.Root, strings.TrimPrefix(t.links.resolved(e.Path), t.links.resolved(parent.Path)))
}

// Others are the mounts without e and the twins of it.
func (t *Table) Others(e Entry, mounts []Entry) []Entry {
	return slices.DeleteFunc(mounts, func(o Entry) bool { return o.ID == e.ID || t.Twin(e, o) })
}

// Without are the mounts that are not placed, nor twins of one that is.
func (t *Table) Without(mounts []Entry, placed func(Entry) bool) []Entry {
	there := filter(slices.Values(mounts), placed)
	return filter(slices.Values(mounts), func(o Entry) bool {
		return !placed(o) && !slices.ContainsFunc(there, func(p Entry) bool { return t.Twin(p, o) })
	})
}

// outside lists the mounts of e's filesystem that are neither at e's path, nor strictly below it or one of the
// directories within, nor twins of such a mount.
func (t *Table) outside(e Entry, within []string) []Entry {
	return t.Without(t.OfDevice(e.Major, e.Minor), func(o Entry) bool { return o.placed(e.Path, within) })
}
