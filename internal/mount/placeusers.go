/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// placeScan finds who uses what is, or was, mounted at a place, in all mount namespaces.
type placeScan struct {
	Place
	path      string
	directory Entry
	// shown are the filesystem and the part of it that are the volume.
	shown Entry
	// group is the peer group of the mount at the place; 0 if it has none.
	group int
	// others are the peer groups of the node's other mounts. Their copies are not copies of the place.
	others map[int]bool
	// overlays are those of the node, such as the root filesystems of containers, by their device numbers.
	overlays map[[2]int]bool
}

func newPlaceScan(p Place, directory Entry, table *Table) placeScan {
	s := placeScan{Place: p, path: p.path(), directory: directory, others: map[int]bool{}, overlays: map[[2]int]bool{},
		shown: Entry{Major: p.Major, Minor: p.Minor, Root: p.Root}}
	if e, mounted := table.At(s.path); mounted {
		s.group = e.PeerGroup
	}
	for _, e := range table.Entries() {
		if e.PeerGroup != 0 && e.PeerGroup != s.group {
			s.others[e.PeerGroup] = true
		}
		if e.FSType == overlay {
			s.overlays[[2]int{e.Major, e.Minor}] = true
		}
	}
	return s
}

// relevant is the part of a table that a scan needs.
func (s placeScan) relevant(t *Table, podOnly bool) *Table {
	of := func(e, filesystem Entry) bool { return e.Major == filesystem.Major && e.Minor == filesystem.Minor }
	keep := func(e Entry) bool {
		parent, _ := t.parent(e)
		return of(e, s.shown) || of(e, s.directory) || of(parent, s.shown) || of(parent, s.directory) ||
			podOnly && (e.FSType == nsfs || e.FSType == overlay && !s.overlays[[2]int{e.Major, e.Minor}])
	}
	return t.only(keep, func(Entry) bool { return true })
}

// check returns a *HeldError if there are copies of the mount, or processes that use its filesystem through a mount
// that no table has. following: the copies that go with an unmount at the place do not count.
func (s placeScan) check(following bool) error {
	seen, err := s.survey()
	if err != nil {
		return err
	}
	groups := seen.groups(s.group)
	var holders []Holder
	for _, v := range seen.views {
		found := v.table.filter(func(e Entry) bool {
			return s.copied(v, e, groups) && !(following && s.follows(v.table, e))
		})
		if len(found) > 0 {
			holders = append(holders, v.holder("has a copy of it mounted at "+found[0].Path, false))
		}
		holders = append(holders, s.indirect(v, seen.whole)...)
	}
	for _, v := range seen.ofPod {
		holders = append(holders, v.strays(s.shown, seen.whole)...)
	}
	return s.heldBy(append(holders, seen.hidden...))
}

// copied reports whether the mount is one of the place: at the place in a mount of the directory, in the peer group of
// the place or a group that receives from it, or private to the pod.
func (s placeScan) copied(v view, e Entry, groups map[int]bool) bool {
	if groups[e.PeerGroup] || groups[e.Master] || s.atPlace(v.table, e) {
		return true
	}
	return v.podOnly && e.PartOf(s.shown) && !s.others[e.PeerGroup] && !s.others[e.Master]
}

// indirect returns the process of the pod if it has mounts that need no copy in any table: overlays of directories of
// the volume, or a mount namespace that is not seen as a whole.
func (s placeScan) indirect(v view, whole map[string]bool) []Holder {
	if !v.podOnly {
		return nil
	}
	if !whole[v.namespace] {
		return []Holder{v.holder("is in a mount namespace with mounts outside of the root of all its processes", false)}
	}
	for _, e := range v.table.entries {
		switch {
		case e.FSType == overlay && slices.ContainsFunc(e.layers(),
			func(dir string) bool { return s.contains(v.table, dir) }):
			return []Holder{v.holder("has an overlay of it mounted at "+e.Path, false)}
		case e.FSType == nsfs && strings.HasPrefix(e.Root, "mnt:[") && !whole[e.Root]:
			return []Holder{v.holder("keeps a mount namespace without a process at "+e.Path, false)}
		}
	}
	return nil
}

// contains reports whether the directory may be one of the volume. After an unmount the path leads to the empty place.
func (s placeScan) contains(t *Table, dir string) bool {
	place := Entry{Major: s.directory.Major, Minor: s.directory.Minor, Root: "/" + s.Name}
	e, found := t.Shown(dir)
	return !filepath.IsAbs(dir) || found && (e.PartOf(s.shown) || e.PartOf(place))
}

const (
	overlay = "overlay"
	// nsfs has namespaces. The root of a mount of it is the namespace, such as mnt:[4026531841].
	nsfs = "nsfs"
)

// layers are the directories of an overlay, under the names that were given when it was mounted.
func (e Entry) layers() []string {
	var dirs []string
	for _, option := range e.SuperOptions {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir":
			if names, err := unescape(value); err == nil {
				value = names
			}
			dirs = append(dirs, strings.FieldsFunc(value, func(r rune) bool { return r == ':' })...)
		}
	}
	return dirs
}

// atPlace reports whether the mount is at the place in any mount of the directory.
func (s placeScan) atPlace(t *Table, e Entry) bool {
	parent, ok := t.parent(e)
	return ok && parent.Major == s.directory.Major && parent.Minor == s.directory.Minor &&
		e.Path == filepath.Join(parent.Path, s.Name)
}

// follows reports whether an unmount at the place removes this copy: the mount around it receives changes of the
// directory, and nothing is mounted on it.
func (s placeScan) follows(t *Table, e Entry) bool {
	parent, _ := t.parent(e)
	group := s.directory.PeerGroup
	receives := group != 0 && (parent.PeerGroup == group || parent.Master == group)
	return receives && s.atPlace(t, e) &&
		!slices.ContainsFunc(t.entries, func(above Entry) bool { return above.ParentID == e.ID })
}

// parent is the mount on which e is mounted.
func (t *Table) parent(e Entry) (Entry, bool) {
	i, ok := t.byID[e.ParentID]
	if !ok || e.ID == e.ParentID {
		return Entry{}, false
	}
	return t.entries[i], true
}

// busy returns a *HeldError with the processes that use the mounts at the place.
func (s placeScan) busy() error {
	seen, err := s.survey()
	if err != nil {
		return err
	}
	var holders []Holder
	for _, v := range seen.processes {
		copies := v.table.filter(func(e Entry) bool { return s.atPlace(v.table, e) })
		found, _ := v.usesMounts(copies) // for the message
		holders = append(holders, found...)
	}
	if err := s.heldBy(holders); err != nil {
		return err
	}
	return &HeldError{Device: Device{Path: s.path}}
}

// heldBy is a *HeldError if there are holders. Each process is named once.
func (s placeScan) heldBy(holders []Holder) error {
	if len(holders) == 0 {
		return nil
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	holders = slices.CompactFunc(holders, func(a, b Holder) bool { return a.PID == b.PID })
	return &HeldError{Device: Device{Path: s.path}, Holders: holders}
}

// view is what a process sees of the mounts.
type view struct {
	process
	table *Table
	// namespace is the mount namespace.
	namespace string
	// podOnly: a process of the pod has the table, and the node itself does not.
	podOnly bool
}

// surveyed is what the node's processes see of the mounts.
type surveyed struct {
	// views are the different tables, each with the first process that has it.
	views []view
	// processes are all processes. ofPod are those of the pod.
	processes, ofPod []view
	// whole are the mount namespaces of which a process has the whole as its root.
	whole map[string]bool
	// hidden are the processes of the pod that cannot be examined.
	hidden []Holder
}

// groups are the peer group and those that receive changes from it.
func (s *surveyed) groups(group int) map[int]bool {
	all := map[int]bool{}
	if group != 0 {
		all[group] = true
	}
	for known := -1; known != len(all); {
		known = len(all)
		for _, v := range s.views {
			for _, e := range v.table.entries {
				if e.PeerGroup != 0 && all[e.Master] {
					all[e.PeerGroup] = true
				}
			}
		}
	}
	return all
}

// mostRounds limits how often a survey examines what has come meanwhile.
const mostRounds = 8

// mostCopies limits the memory of a survey.
const mostCopies = 20000

// These mean that a survey did not come to an end. The answer is unknown.
var (
	errUnsettled = errors.New("processes with mount tables of their own come and go too fast to be examined")
	errTooMany   = fmt.Errorf("the volume has more than %d mounts on the node", mostCopies)
)

// survey examines all threads: each may have a mount namespace and a root of its own, and the first thread of a process
// may have ended before the others. It goes on until nothing that has come meanwhile has a table of its own.
func (s placeScan) survey() (*surveyed, error) {
	all := surveyor{scan: s, seen: map[string]bool{}, asked: map[int][]process{}, tables: map[string]*Table{}}
	all.whole = map[string]bool{}
	for _, of := range []string{"self", "1"} {
		if namespace, err := os.Readlink(filepath.Join("/proc", of, "ns", "mnt")); err == nil {
			all.node = append(all.node, namespace)
		}
	}
	for range mostRounds {
		known := len(all.tables)
		if err := all.round(); err != nil {
			return nil, err
		}
		if known > 0 && len(all.tables) == known {
			return &all.surveyed, nil
		}
	}
	return nil, errUnsettled
}

type surveyor struct {
	surveyed
	scan placeScan
	// node are the mount namespaces of the node and of this process.
	node []string
	// seen are the threads, by their directories in /proc, and asked those of each process that are in the result.
	seen   map[string]bool
	asked  map[int][]process
	tables map[string]*Table
	// copies counts the mounts in the tables.
	copies int
}

// round examines the threads that are new.
func (s *surveyor) round() error {
	pids, err := processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		all, err := threads(pid)
		if err != nil {
			return err
		}
		for _, thread := range all {
			if s.seen[thread.dir] {
				continue
			}
			s.seen[thread.dir] = true
			if err := s.examine(thread); err != nil && !ended(err) {
				return fmt.Errorf("reading process %d: %w", pid, err)
			}
		}
	}
	return nil
}

func (s *surveyor) examine(p process) error {
	groups, err := os.ReadFile(filepath.Join(p.dir, "cgroup"))
	if err != nil {
		return err
	}
	ofPod := s.scan.PodUID != "" && podOf(string(groups)) == s.scan.PodUID
	namespace := p.namespace()
	podOnly := ofPod && !slices.Contains(s.node, namespace)
	root, _ := os.Readlink(filepath.Join(p.dir, "root"))
	s.whole[namespace] = s.whole[namespace] || root == "/"
	table, first, err := p.table(s.tables, ofPod, func(t *Table) *Table { return s.scan.relevant(t, podOnly) })
	if errors.Is(err, fs.ErrPermission) { // a security policy hides it even from root
		if ofPod {
			s.hidden = append(s.hidden, p.holder("cannot be examined", false))
		}
		return nil
	}
	if err != nil {
		return err
	}
	v := view{process: p, table: table, namespace: namespace, podOnly: podOnly}
	if first {
		s.views = append(s.views, v)
		if s.copies += len(table.entries); s.copies > mostCopies {
			return errTooMany
		}
	}
	if slices.ContainsFunc(s.asked[p.pid], p.sharesFiles) {
		return nil
	}
	s.asked[p.pid] = append(s.asked[p.pid], p)
	s.processes = append(s.processes, v)
	if ofPod {
		s.ofPod = append(s.ofPod, v)
	}
	return nil
}
