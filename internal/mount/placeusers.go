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

	"golang.org/x/sys/unix"
)

// placeScan finds who uses what is, or was, mounted at a place, in all mount namespaces.
type placeScan struct {
	Place
	path      string
	directory Entry
	// shown are the filesystem and the part of it that are, or were, at the place.
	shown Entry
	// group is the peer group of the mount at the place; 0 if it has none.
	group int
	// others are the peer groups of the node's other mounts. Their copies are not copies of the place.
	others map[int]bool
}

func newPlaceScan(p Place, directory Entry, table *Table) placeScan {
	s := placeScan{Place: p, path: p.path(), directory: directory, others: map[int]bool{},
		// A user of the volume may have renamed the part that was bound, so any part counts.
		shown: Entry{Major: p.Major, Minor: p.Minor, Root: "/"}}
	if e, mounted := table.At(s.path); mounted {
		s.shown, s.group = e, e.PeerGroup
	}
	for _, e := range table.Entries() {
		if e.PeerGroup != 0 && e.PeerGroup != s.group {
			s.others[e.PeerGroup] = true
		}
	}
	return s
}

// check returns a *HeldError if there are copies of the mount, or processes that use its filesystem through a mount
// that no table has. following: the copies that go with an unmount at the place do not count.
func (s placeScan) check(following bool) error {
	seen, err := survey(s.PodUID)
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
	}
	for _, v := range seen.ofPod {
		holders = append(holders, v.strays(s.shown)...)
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
	seen, err := survey(s.PodUID)
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

// usesMounts returns the process if it has a file of one of the mounts open, mapped or as its directory.
func (p process) usesMounts(mounts []Entry) ([]Holder, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	on := func(id int) bool { return slices.ContainsFunc(mounts, func(e Entry) bool { return e.ID == id }) }
	for _, dir := range []string{"cwd", "root"} {
		link := filepath.Join(p.dir, dir)
		if stat, err := p.stat(dir); err == nil && on(int(stat.Mnt_id)) {
			path, _ := os.Readlink(link) // for the message
			return []Holder{p.holder("has "+path+" as its directory", false)}, nil
		}
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, "fd"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if d, err := p.describe(e.Name()); err == nil && on(d.mount) {
			path, _ := os.Readlink(filepath.Join(p.dir, "fd", e.Name())) // for the message
			return []Holder{p.holder("has "+path+" open", false)}, nil
		}
	}
	mapped, err := p.mapped(mounts...)
	if err != nil || len(mapped) == 0 {
		return nil, err
	}
	return []Holder{p.holder("has "+mapped[0].path+" mapped", false)}, nil
}

// strays returns the process if it uses the filesystem through a mount that its table does not have: one that was
// detached, or is outside of its root. The kernel need not find that in use.
func (v view) strays(shown Entry) []Holder {
	stray := func(stat unix.Statx_t, err error) bool {
		_, known := v.table.byID[int(stat.Mnt_id)]
		return err == nil && !known && int(stat.Dev_major) == shown.Major && int(stat.Dev_minor) == shown.Minor
	}
	links := []string{"cwd", "root"}
	entries, err := os.ReadDir(filepath.Join(v.dir, "fd"))
	if err != nil && !ended(err) {
		return []Holder{v.holder("cannot be examined", false)}
	}
	for _, e := range entries {
		d, err := v.describe(e.Name())
		if _, known := v.table.byID[d.mount]; err == nil && !known {
			links = append(links, filepath.Join("fd", e.Name()))
		}
	}
	mapped, err := v.mapped(shown)
	if err != nil && !ended(err) {
		return []Holder{v.holder("cannot be examined", false)}
	}
	for _, m := range mapped {
		links = append(links, filepath.Join("..", "..", "map_files", m.addresses))
	}
	for _, link := range links {
		if stray(v.stat(link)) {
			path, _ := os.Readlink(filepath.Join(v.dir, link)) // for the message
			return []Holder{v.holder("uses "+path+" of a mount that was detached", false)}
		}
	}
	return nil
}

// view is what a process sees of the mounts.
type view struct {
	process
	table *Table
	// podOnly: a process of the pod has the table, and the node itself does not.
	podOnly bool
}

// surveyed is what the node's processes see of the mounts.
type surveyed struct {
	// views are the different tables, each with the first process that has it.
	views []view
	// processes are all processes. ofPod are those of the pod.
	processes, ofPod []view
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

// errUnsettled means that a survey did not come to an end. The answer is unknown.
var errUnsettled = errors.New("processes with mount tables of their own come and go too fast to be examined")

// survey examines all threads: each may have a mount namespace and a root of its own, and the first thread of a process
// may have ended before the others. It goes on until nothing that has come meanwhile has a table of its own.
func survey(podUID string) (*surveyed, error) {
	s := surveyor{podUID: podUID, seen: map[string]bool{}, asked: map[int]bool{}, tables: map[string]*Table{}}
	for _, of := range []string{"self", "1"} {
		if namespace, err := os.Readlink(filepath.Join("/proc", of, "ns", "mnt")); err == nil {
			s.node = append(s.node, namespace)
		}
	}
	for range mostRounds {
		known := len(s.tables)
		if err := s.round(); err != nil {
			return nil, err
		}
		if known > 0 && len(s.tables) == known {
			return &s.surveyed, nil
		}
	}
	return nil, errUnsettled
}

type surveyor struct {
	surveyed
	podUID string
	// node are the mount namespaces of the node and of this process.
	node []string
	// seen are the threads, by their directories in /proc, and asked the processes that are in the result.
	seen   map[string]bool
	asked  map[int]bool
	tables map[string]*Table
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
	ofPod := s.podUID != "" && podOf(string(groups)) == s.podUID
	table, first, err := p.table(s.tables, ofPod)
	if errors.Is(err, fs.ErrPermission) { // a security policy hides it even from root
		if ofPod {
			s.hidden = append(s.hidden, p.holder("cannot be examined", false))
		}
		return nil
	}
	if err != nil {
		return err
	}
	v := view{process: p, table: table, podOnly: ofPod && !slices.Contains(s.node, p.namespace())}
	if first {
		s.views = append(s.views, v)
	}
	if s.asked[p.pid] {
		return nil
	}
	s.asked[p.pid] = true
	s.processes = append(s.processes, v)
	if ofPod {
		s.ofPod = append(s.ofPod, v)
	}
	return nil
}
