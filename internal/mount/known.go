/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"iter"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/mount/statmount"
)

// known is what was known of each mount when it was read by itself. It needs a kernel that shows mounts by themselves.
type known struct {
	mu sync.Mutex
	// kernel is nil before the first use, and where refused.
	kernel  *statmount.Namespace
	refused bool
	// file is the table's, which reports changes.
	file *os.File
	// attempts to show that the kernel's calls show what the mount table has.
	attempts int
	shown    bool

	// ids of the mounts, and where the table has them.
	ids, spare []statmount.ID
	at         []int
	// table of the mounts; nil for none. since is when the oldest was read, and began when they were listed last.
	table        *Table
	since, began time.Time
}

// mostChanges is how many mounts may have come and gone before all of the table is read again.
const mostChanges = 256

// attemptsToShow is how often the two tables are compared before the kernel's calls are given up. They differ where
// something was mounted between them.
const attemptsToShow = 10

// within returns a table that has exactly those mounts that there are now. What it has of a mount may be as old as age.
// Where the kernel does not show mounts by themselves, the table is read, once for a burst of changes.
func (t *tables) within(age time.Duration) (*Table, error) {
	called := time.Now()
	k := &t.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.usable(t.path) {
		return t.get(age)
	}
	if k.table != nil && k.shown && k.began.After(called) && called.Sub(k.since) < age {
		return k.table, nil
	}
	if k.table != nil && called.Sub(k.since) >= age {
		k.table = nil
	}
	if err := k.update(t.links); err != nil {
		k.table, k.refused = nil, true
		return t.get(age)
	}
	if !k.shown {
		return t.compare(k)
	}
	return k.table, nil
}

func (k *known) usable(mountInfo string) bool {
	if k.kernel == nil && !k.refused {
		var err, failed error
		var reports bool
		k.kernel, err = statmount.Of(mountInfo)
		k.file, reports, failed = openTable(mountInfo)
		k.refused = err != nil || failed != nil || !reports
	}
	return !k.refused
}

// update reads the mounts that have come since the last table, or all if there is none.
func (k *known) update(links Links) error {
	began := time.Now()
	changes, err := changed(k.file)
	if err != nil {
		return err
	}
	if k.table != nil && !changes {
		k.began = began
		return nil
	}
	ids, err := k.kernel.List(k.spare)
	if err != nil {
		return err
	}
	if k.table == nil {
		k.ids, k.at, k.since = k.ids[:0], nil, began
	}
	k.began = began
	if k.table != nil && slices.Equal(ids, k.ids) {
		k.spare = ids
		return nil
	}
	return k.merge(ids, links)
}

// merge makes the table of the mounts that are there. It reads those that are not known, and leaves out those that have
// gone meanwhile.
func (k *known) merge(ids []statmount.ID, links Links) error {
	var gone []int
	var later []Entry
	listed, at, old, first := ids[:0], make([]int, 0, len(ids)), 0, 0
	if k.table != nil {
		first = len(k.table.entries)
	}
	leave := func(until statmount.ID) {
		for ; old < len(k.ids) && k.ids[old] < until; old++ {
			gone = append(gone, k.at[old])
		}
	}
	for _, id := range ids {
		leave(id)
		if old < len(k.ids) && k.ids[old] == id {
			listed, at = append(listed, id), append(at, k.at[old])
			old++
			continue
		}
		m, err := k.kernel.Get(id)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		listed, at = append(listed, id), append(at, first+len(later))
		later = append(later, entryOf(m))
	}
	leave(^statmount.ID(0))
	k.spare, k.ids, k.at = k.ids, listed, at
	if k.table == nil {
		k.table = newTable(later, links)
		return nil
	}
	k.table = k.table.change(gone, later)
	if len(k.table.later.byID)+len(k.table.gone) > mostChanges {
		k.since = time.Time{} // the next one reads all
	}
	return nil
}

// at returns the mount that is reachable at path as it is now, and a table that has it there. That nothing is mounted
// there is only known of a whole table: a mount may have been moved to the path since its place was read. One that was
// moved to a directory above since, and hides the mount, is not seen yet.
func (t *tables) at(path string) (*Table, Entry, bool, error) {
	if table, e, mounted, err := t.knownAt(path); mounted || err != nil {
		return table, e, mounted, err
	}
	table, err := t.get(0)
	if err != nil {
		return nil, Entry{}, false, err
	}
	e, mounted := table.At(path)
	return table, e, mounted, nil
}

// knownAt returns the mount that is known at path, once the kernel shows it there again with nothing on it.
func (t *tables) knownAt(path string) (table *Table, e Entry, mounted bool, err error) {
	if !t.known.trusted() {
		return nil, e, false, nil
	}
	if table, err = t.within(Recent); err != nil {
		return nil, e, false, err
	}
	if e, mounted = table.At(path); !mounted {
		return nil, e, false, nil
	}
	now, known := t.known.again(e)
	mounted = known && now.Path == table.links.resolved(path)
	now.Path = e.Path
	return table, now, mounted, nil
}

func (k *known) trusted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shown && !k.refused
}

// again reads the mount of the entry again, unless something is mounted on it: that may have been moved there, so the
// entry is not known to be reachable. A later mount may have its number, so it needs to show the same.
func (k *known) again(e Entry) (Entry, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table == nil {
		return Entry{}, false
	}
	number, there := k.table.number(e.ID)
	i := slices.Index(k.at, number)
	if !there || i < 0 {
		return Entry{}, false
	}
	covered, err := k.kernel.Covered(k.ids[i])
	if err != nil || covered {
		return Entry{}, false
	}
	m, err := k.kernel.Get(k.ids[i])
	now := entryOf(m)
	return now, err == nil && now.sameDevice(e) && now.Root == e.Root
}

func entryOf(m statmount.Mount) Entry {
	return Entry{ID: m.ID, ParentID: m.ParentID, Major: m.Major, Minor: m.Minor,
		Root: strings.TrimSuffix(m.Root, Unlinked), Path: m.Path, FSType: m.FSType, Source: m.Source, Options: m.Options,
		SuperOptions: append(m.SuperOptions, splitOptions(m.FilesystemOptions)...),
		PeerGroup:    m.PeerGroup, Master: m.Master}
}

// compare returns the table of the file, and trusts the kernel's calls once both show the same.
func (t *tables) compare(k *known) (*Table, error) {
	table, err := t.get(0)
	if err != nil {
		return nil, err
	}
	byID := func(t *Table) []Entry {
		return slices.SortedFunc(t.all(), func(a, b Entry) int { return a.ID - b.ID })
	}
	k.attempts++
	k.shown = reflect.DeepEqual(byID(table), byID(k.table))
	k.refused = !k.shown && k.attempts >= attemptsToShow
	if !k.shown {
		k.table = nil
	}
	return table, nil
}

// index finds entries of a table.
type index struct {
	byPath map[string][]int
	// byResolved has the kernel's paths, which show which mount hides which.
	byResolved map[string][]int
	byID       map[int]int
}

// add indexes further entries, the first of which has that number, and gives them the programs' names.
func (x *index) add(entries []Entry, first int, links Links) {
	for i := range entries {
		e, number := &entries[i], first+i
		x.byID[e.ID] = number
		x.byResolved[e.Path] = append(x.byResolved[e.Path], number)
		if len(links) > 0 {
			e.Path = links.named(e.Path)
			x.byPath[e.Path] = append(x.byPath[e.Path], number)
		}
	}
}

func newIndex(size int, links Links) index {
	x := index{byResolved: make(map[string][]int, size), byID: make(map[int]int, size)}
	x.byPath = x.byResolved
	if len(links) > 0 {
		x.byPath = make(map[string][]int, size)
	}
	return x
}

func (x index) clone(links Links) index {
	c := index{byResolved: maps.Clone(x.byResolved), byID: maps.Clone(x.byID)}
	c.byPath = c.byResolved
	if len(links) > 0 {
		c.byPath = maps.Clone(x.byPath)
	}
	return c
}

// change returns the table without the entries of those numbers, and with others. It may be called once for a table:
// both have what does not change.
func (t *Table) change(gone []int, later []Entry) *Table {
	changed := &Table{entries: append(t.entries, later...), links: t.links, read: t.read, later: t.later.clone(t.links),
		gone: maps.Clone(t.gone)}
	if t.later.byID == nil {
		changed.later = newIndex(len(later), t.links)
	}
	changed.later.add(changed.entries[len(t.entries):], len(t.entries), t.links)
	if changed.gone == nil {
		changed.gone = make(map[int]bool, len(gone))
	}
	for _, i := range gone {
		changed.gone[i] = true
	}
	return changed
}

// all returns the entries in their order.
func (t *Table) all() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i, e := range t.entries {
			if !t.gone[i] && !yield(e) {
				return
			}
		}
	}
}

// named returns the numbers of the entries at a path of the programs, and resolved at one of the kernel.
func (t *Table) named(path string) []int { return t.present(t.read.byPath[path], t.later.byPath[path]) }
func (t *Table) resolved(path string) []int {
	return t.present(t.read.byResolved[path], t.later.byResolved[path])
}

func (t *Table) present(read, later []int) []int {
	if len(later) == 0 && len(t.gone) == 0 {
		return read
	}
	return slices.DeleteFunc(slices.Concat(read, later), func(i int) bool { return t.gone[i] })
}

// number of the entry with that ID.
func (t *Table) number(id int) (int, bool) {
	for _, x := range []index{t.later, t.read} {
		if i, known := x.byID[id]; known && !t.gone[i] {
			return i, true
		}
	}
	return 0, false
}
