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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// placeScan finds who uses what is, or was, mounted at a place, in all mount namespaces.
type placeScan struct {
	directory Entry
	place     string
	path      string
}

// copies are the mounts of the table at the place, in any mount of the directory.
func (s placeScan) copies(t *Table) []Entry {
	return t.filter(func(e Entry) bool {
		i, ok := t.byID[e.ParentID]
		if !ok || e.ID == e.ParentID {
			return false
		}
		parent := t.entries[i]
		return parent.Major == s.directory.Major && parent.Minor == s.directory.Minor &&
			e.Path == filepath.Join(parent.Path, s.place)
	})
}

// leftBehind are the copies that an unmount at the directory leaves in place: because the mount around them does not
// receive changes of the directory, or because something is mounted on them.
func (s placeScan) leftBehind(t *Table) []Entry {
	return slices.DeleteFunc(s.copies(t), func(e Entry) bool {
		parent := t.entries[t.byID[e.ParentID]]
		group := s.directory.PeerGroup
		follows := group != 0 && (parent.PeerGroup == group || parent.Master == group)
		return follows && !slices.ContainsFunc(t.entries, func(above Entry) bool { return above.ParentID == e.ID })
	})
}

// check returns a *HeldError if processes have such mounts in a mount namespace other than this process's.
func (s placeScan) check(find func(placeScan, *Table) []Entry) error {
	return s.scan(func(p process, t *Table, first bool) ([]Holder, error) {
		found := find(s, t)
		if !first || len(found) == 0 {
			return nil, nil
		}
		return []Holder{p.holder("has a copy of it mounted at "+found[0].Path, false)}, nil
	})
}

// busy returns a *HeldError with the processes that use the mounts at the place.
func (s placeScan) busy() error {
	err := s.scan(func(p process, t *Table, _ bool) ([]Holder, error) { return p.usesMounts(s.copies(t)) })
	if err != nil {
		return err
	}
	return &HeldError{Device: Device{Path: s.path}}
}

// scan asks every process. first is set for the first of each mount namespace.
func (s placeScan) scan(ask func(p process, t *Table, first bool) ([]Holder, error)) error {
	pids, err := processes()
	if err != nil {
		return err
	}
	tables := map[string]*Table{}
	var holders []Holder
	for _, pid := range pids {
		p := process{pid: pid, dir: filepath.Join("/proc", strconv.Itoa(pid))}
		found, err := s.ofProcess(p, tables, ask)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission):
			// The process has ended, or a security policy hides it even from root.
		case err != nil:
			return fmt.Errorf("reading process %d: %w", pid, err)
		}
		holders = append(holders, found...)
	}
	if len(holders) > 0 {
		return &HeldError{Device: Device{Path: s.path}, Holders: holders}
	}
	return nil
}

func (s placeScan) ofProcess(p process, tables map[string]*Table,
	ask func(p process, t *Table, first bool) ([]Holder, error)) ([]Holder, error) {
	table, first, err := p.table(tables)
	if err != nil {
		return nil, err
	}
	return ask(p, table, first)
}

// usesMounts returns the process if it has a file of one of the mounts open, mapped or as its directory.
func (p process) usesMounts(mounts []Entry) ([]Holder, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	on := func(id int) bool { return slices.ContainsFunc(mounts, func(e Entry) bool { return e.ID == id }) }
	for _, dir := range []string{"cwd", "root"} {
		var stat unix.Statx_t
		link := filepath.Join(p.dir, dir)
		if unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &stat) == nil && on(int(stat.Mnt_id)) {
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
	return p.maps(mounts)
}

// maps returns the process if it has a file mapped from the filesystem of one of the mounts.
func (p process) maps(mounts []Entry) ([]Holder, error) {
	data, err := os.ReadFile(filepath.Join(p.dir, "maps"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line) // address, permissions, offset, device, inode, path
		if len(fields) < 6 {
			continue
		}
		for _, e := range mounts {
			if fields[3] == fmt.Sprintf("%02x:%02x", e.Major, e.Minor) {
				return []Holder{p.holder("has "+fields[5]+" mapped", false)}, nil
			}
		}
	}
	return nil, nil
}
