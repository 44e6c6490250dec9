/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Entry is one mount.
type Entry struct {
	ID, ParentID int
	// Major and Minor are the filesystem's device number, 0:N for one without a device (and for btrfs).
	Major, Minor int
	// Root is the mounted part of the filesystem: / or, for a bind mount, the path within, which may be unlinked by now.
	Root string
	// Path is the mount point, with the name that programs use: see Links.
	Path   string
	FSType string
	// Source is the source argument of the mount, for instance /dev/loop0.
	Source string
	// Options of this mount, such as ro or noatime.
	Options []string
	// SuperOptions are the options of the filesystem.
	SuperOptions []string
	// PeerGroup is the group in which changes below the mount propagate, and Master the group that it receives them from
	// without sending any. 0 is none.
	PeerGroup, Master int
}

// Unlinked is what the kernel appends to the root of a mount whose path is gone, as the node of a device that has
// vanished. Network filesystems also forget paths that are there. The mount still shows what it did.
const Unlinked = "//deleted"

// ReadOnly reports whether this mount prevents all writes.
func (e Entry) ReadOnly() bool {
	return slices.Contains(e.Options, "ro") || slices.Contains(e.SuperOptions, "ro")
}

// SameSource reports whether both mounts show the same part of the same filesystem.
func (e Entry) SameSource(other Entry) bool {
	shown, others := parts(e, other)
	return e.sameDevice(other) && shown == others
}

// PartOf reports whether the mount shows the same as other, or a part of it.
func (e Entry) PartOf(other Entry) bool {
	shown, others := parts(e, other)
	return e.sameDevice(other) && (shown == others || strings.HasPrefix(shown, strings.TrimSuffix(others, "/")+"/"))
}

func (e Entry) sameDevice(other Entry) bool { return e.Major == other.Major && e.Minor == other.Minor }

// parts are the paths in their filesystem that two mounts show. Directories of an NFS server share a device number, and
// each is a root, also a bind mount of a part. There the paths at the server count, where both are known.
func parts(e, other Entry) (ofE, ofOther string) {
	_, one, known := strings.Cut(e.Source, ":/")
	_, another, also := strings.Cut(other.Source, ":/")
	if !strings.HasPrefix(e.FSType, "nfs") || !known || !also {
		return e.Root, other.Root
	}
	return path.Join("/", one, e.Root), path.Join("/", another, other.Root)
}

// Table is a mount table at one moment.
type Table struct {
	entries []Entry
	// read is of the entries that were read together, and later of those that came later.
	read, later index
	// gone are the entries of mounts that are there no more.
	gone  map[int]bool
	links Links
	// omitted are the IDs of the remote mounts that only has left out, in order.
	omitted []int
	// remotes are the device numbers of the remote filesystems of the table that only was called on.
	remotes map[[2]int]bool
}

// Parse parses the content of a mountinfo file. An invalid line is an error, because a missing mount would count as not
// mounted. A line may have any length: it contains a path in a volume, and the volume's users make its directories. The
// libraries limit it to 64 KiB (moby/sys/mountinfo) or leave the kernel's escapes in the paths (mount-utils).
func Parse(data []byte) (*Table, error) {
	entries, err := parseEntries(data)
	if err != nil {
		return nil, err
	}
	return NewTable(entries), nil
}

func parseEntries(data []byte) ([]Entry, error) {
	entries := make([]Entry, 0, bytes.Count(data, []byte("\n")))
	for line := range bytes.Lines(data) {
		e, err := parseEntry(string(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil {
			return nil, fmt.Errorf("parsing mount table: line %.1000q: %w", line, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry parses a line: the fields of the mount, any number of optional ones, a hyphen, and the filesystem's.
// Fields other than the last contain no space. The source may be empty.
func parseEntry(line string) (e Entry, err error) {
	ofMount, ofFilesystem, _ := strings.Cut(line, " - ")
	m, f := strings.Split(ofMount, " "), strings.SplitN(ofFilesystem, " ", 3)
	if len(m) < 6 || len(f) < 3 {
		return e, errors.New("fields are missing")
	}
	major, minor, _ := strings.Cut(m[2], ":")
	var errs [8]error
	e.ID, errs[0] = strconv.Atoi(m[0])
	e.ParentID, errs[1] = strconv.Atoi(m[1])
	e.Major, errs[2] = strconv.Atoi(major)
	e.Minor, errs[3] = strconv.Atoi(minor)
	e.Root, errs[4] = unescape(m[3])
	e.Root = strings.TrimSuffix(e.Root, Unlinked)
	e.Path, errs[5] = unescape(m[4])
	e.FSType, errs[6] = unescape(f[0])
	e.Source, errs[7] = unescape(f[1])
	e.Options, e.SuperOptions = splitOptions(m[5]), splitOptions(f[2])
	e.PeerGroup, e.Master = peerGroup(m[6:], "shared:"), peerGroup(m[6:], "master:")
	return e, errors.Join(errs[:]...)
}

// unescape replaces the kernel's escapes: a backslash and three octal digits.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var text strings.Builder
	for {
		before, after, escaped := strings.Cut(s, `\`)
		text.WriteString(before)
		if !escaped {
			return text.String(), nil
		}
		if len(after) < 3 {
			return "", errors.New("an escape is too short")
		}
		char, err := strconv.ParseUint(after[:3], 8, 8)
		if err != nil {
			return "", fmt.Errorf("reading an escape: %w", err)
		}
		text.WriteByte(byte(char))
		s = after[3:]
	}
}

// peerGroup is the peer group that the optional fields of a mount name after the key; 0 for none.
func peerGroup(optional []string, key string) int {
	for _, field := range optional {
		if number, ok := strings.CutPrefix(field, key); ok {
			id, err := strconv.Atoi(number)
			if err != nil {
				return 0
			}
			return id
		}
	}
	return 0
}

// NewTable returns a table of the entries, for tests and fakes.
func NewTable(entries []Entry) *Table {
	return newTable(entries, nil)
}

// newTable gives the mounts the programs' names.
func newTable(entries []Entry, links Links) *Table {
	t := &Table{entries: entries, links: links, read: newIndex(len(entries), links)}
	t.read.add(entries, 0, links)
	return t
}

// splitOptions splits at commas outside of double quotes; an SELinux context may contain commas.
func splitOptions(s string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

// Entries returns all mounts, in the kernel's order unless they were read one by one. The caller must not change the
// slice.
func (t *Table) Entries() []Entry {
	if len(t.gone) == 0 {
		return t.entries
	}
	return slices.Collect(t.all())
}

// At returns the mount that is reachable at path: the top-most one, unless another mount hides it.
func (t *Table) At(path string) (Entry, bool) { return t.top(t.named(filepath.Clean(path))) }

// top is the reachable entry among the entries of one path.
func (t *Table) top(indices []int) (Entry, bool) {
	for _, i := range slices.Backward(indices) {
		if e := t.entries[i]; !t.covered(e) && !t.hidden(e) {
			return e, true
		}
	}
	return Entry{}, false
}

// Shown returns what a bind mount of the directory at path would show: the mount there, or the part of the mount that
// contains it.
func (t *Table) Shown(path string) (Entry, bool) {
	path = t.links.resolved(filepath.Clean(path))
	for dir := path; ; dir = filepath.Dir(dir) {
		if e, ok := t.top(t.resolved(dir)); ok {
			e.Root = filepath.Join(e.Root, strings.TrimPrefix(path, dir))
			return e, true
		}
		if dir == filepath.Dir(dir) {
			return Entry{}, false
		}
	}
}

// All returns every mount at path, including hidden and covered ones. While it is not empty, the path is not free.
func (t *Table) All(path string) []Entry { return t.pick(t.named(filepath.Clean(path))) }

// Below returns every mount below dir, not those at dir itself, including hidden ones.
func (t *Table) Below(dir string) []Entry {
	prefix := filepath.Clean(dir)
	if prefix != "/" {
		prefix += "/"
	}
	return t.filter(func(e Entry) bool { return e.Path != "/" && strings.HasPrefix(e.Path, prefix) })
}

// Shares returns the mounts, other than e and its twins, that show the same as e or a part of it. Each keeps the
// filesystem alive.
func (t *Table) Shares(e Entry) []Entry {
	return t.Others(e, t.filter(func(o Entry) bool { return o.PartOf(e) }))
}

// OfDevice returns every mount of the filesystem with that device number, whatever part it shows.
func (t *Table) OfDevice(major, minor int) []Entry {
	return t.filter(func(e Entry) bool { return e.Major == major && e.Minor == minor })
}

// Own reports whether e shows a whole filesystem that belongs to one volume alone. Each of its mounts must be at e's
// path, or strictly below it or one of the directories within, or be the twin of such a mount.
func (t *Table) Own(e Entry, within ...string) bool {
	return e.Root == "/" && len(t.outside(e, within)) == 0
}

// placed reports whether the mount is at path, or strictly below it or one of the directories within.
func (e Entry) placed(path string, within []string) bool {
	return e.Path == path || strictlyBelow(e.Path, path) ||
		slices.ContainsFunc(within, func(dir string) bool { return strictlyBelow(e.Path, dir) })
}

func (t *Table) filter(keep func(Entry) bool) []Entry { return filter(t.all(), keep) }

func filter(mounts iter.Seq[Entry], keep func(Entry) bool) []Entry {
	var found []Entry
	for e := range mounts {
		if keep(e) {
			found = append(found, e)
		}
	}
	return found
}

// only is the table without the mounts that are not to be kept. Of these it has the IDs and the device numbers of
// remote filesystems. A pod may have a hundred thousand mounts in each of many mount namespaces.
func (t *Table) only(keep func(Entry) bool) *Table {
	kept := NewTable(t.filter(keep))
	kept.remotes = map[[2]int]bool{}
	for e := range t.all() {
		if !e.remote() {
			continue
		}
		kept.remotes[[2]int{e.Major, e.Minor}] = true
		if !keep(e) {
			kept.omitted = append(kept.omitted, e.ID)
		}
	}
	slices.Sort(kept.omitted)
	return kept
}

func (t *Table) pick(indices []int) []Entry {
	var found []Entry
	for _, i := range indices {
		found = append(found, t.entries[i])
	}
	return found
}

// covered reports whether another mount is on top of e at the same path.
func (t *Table) covered(e Entry) bool {
	for _, i := range t.named(e.Path) {
		if above := t.entries[i]; above.ParentID == e.ID && above.ID != e.ID {
			return true
		}
	}
	return false
}

// hidden reports whether a mount over one of the directories above e, in e's parent or further up, hides e. It also
// does if the parents have no end: in a table with a part of an earlier one, an ID may have another mount by now.
func (t *Table) hidden(e Entry) bool {
	for range len(t.entries) + 1 {
		parent, ok := t.parent(e)
		if !ok {
			return false
		}
		for dir := t.links.resolved(e.Path); dir != "/"; {
			dir = filepath.Dir(dir)
			for _, i := range t.resolved(dir) {
				if s := t.entries[i]; s.ParentID == e.ParentID && s.ID != e.ID && s.ID != e.ParentID {
					return true
				}
			}
		}
		e = parent
	}
	return true
}

// SELinux reports whether the node has SELinux.
func (t *Table) SELinux() bool {
	return len(t.filter(func(e Entry) bool { return e.FSType == "selinuxfs" })) > 0
}
