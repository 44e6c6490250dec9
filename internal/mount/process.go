/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes lists the node's processes except this one, ordered by number.
func processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// uses lists how the process uses the device. Processes with the same view of the mounts report them once, for the
// first of them. files are the mapped files that were examined before.
func (p process) uses(d Device, tables map[string]*Table, files map[string]bool) ([]Holder, error) {
	mounted := func(e Entry) bool {
		return e.Major == int(d.Major) && e.Minor == int(d.Minor) || e.Major == 0 && e.Source == d.Path
	}
	table, first, err := p.table(tables, func(t *Table) *Table { return t.only(mounted) })
	if err != nil {
		return nil, err
	}
	var holders []Holder
	if entries := table.Entries(); first && len(entries) > 0 {
		holders = append(holders, p.holder("has it mounted at "+entries[0].Path, false))
	}
	opened, err := p.opened(d, table)
	if err != nil || len(opened) > 0 {
		return append(holders, opened...), err
	}
	mapped, err := p.mapsDevice(d, table, files)
	return append(holders, mapped...), err
}

// mapsDevice returns the process if it has the device itself mapped, which no descriptor need show.
func (p process) mapsDevice(d Device, table *Table, files map[string]bool) ([]Holder, error) {
	mapped, err := p.mapped(func(major, minor int) bool { return !table.remotes[[2]int{major, minor}] })
	if err != nil {
		return nil, err
	}
	for _, m := range mapped {
		if files[m.file] {
			continue
		}
		var stat unix.Statx_t
		mapped, err := p.examine(m, func(link string) (err error) { stat, err = p.stat(link); return err })
		shutDown := errors.Is(err, unix.EIO) || errors.Is(err, unix.ESTALE) // the filesystem of the file
		if err != nil && !shutDown {
			return nil, err
		}
		if !mapped || shutDown {
			continue
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFBLK && stat.Rdev_major == d.Major && stat.Rdev_minor == d.Minor {
			return []Holder{p.holder("has it mapped as "+m.path, true)}, nil
		}
		files[m.file] = true
	}
	return nil, nil
}

// table returns the mount table of the process. It is read once for each mount namespace and root: a table has only
// what is below the root of its process. first is set when it is read; then only what shrink returns is kept.
func (p process) table(tables map[string]*Table, shrink func(*Table) *Table) (table *Table, first bool, err error) {
	key := p.dir
	if namespace := p.namespace(); namespace != "" {
		root, err := os.Readlink(filepath.Join(p.dir, "root"))
		if err != nil {
			return nil, false, err
		}
		key = namespace + root
	}
	if table, seen := tables[key]; seen {
		return table, false, nil
	}
	table, err = ReadTable(filepath.Join(p.dir, "mountinfo"))
	if errors.Is(err, unix.EINVAL) {
		return nil, false, fs.ErrNotExist // a process that is ending has no mounts
	}
	if err != nil {
		return nil, false, err
	}
	tables[key] = shrink(table)
	return tables[key], true, nil
}

// namespace names the mount namespace of the process, if that can be read.
func (p process) namespace() string {
	namespace, _ := os.Readlink(filepath.Join(p.dir, "ns", "mnt"))
	return namespace
}

// ended reports whether the error shows that the process has ended.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// opened returns the process if it has the device, or a file of its filesystem, open. The table has the mounts of the
// device: on btrfs, files have other device numbers than their mount.
func (p process) opened(d Device, table *Table) ([]Holder, error) {
	entries, err := os.ReadDir(filepath.Join(p.dir, "fd"))
	if err != nil {
		return nil, err
	}
	var found []Holder
	for _, e := range entries {
		path, err := os.Readlink(filepath.Join(p.dir, "fd", e.Name()))
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		if err != nil || !strings.HasPrefix(path, "/") {
			continue // closed, or not a file
		}
		info, err := p.describe(e.Name())
		if err != nil || table.remote(info.mount) {
			continue
		}
		var stat unix.Statx_t
		link := filepath.Join(p.dir, "fd", e.Name())
		if err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat); err != nil {
			continue
		}
		device := stat.Mode&unix.S_IFMT == unix.S_IFBLK && stat.Rdev_major == d.Major && stat.Rdev_minor == d.Minor
		if device && info.writes {
			return []Holder{p.holder("has it open for writing as "+path, true)}, nil
		}
		_, ofMount := table.number(info.mount)
		if found == nil && (device || ofMount || stat.Dev_major == d.Major && stat.Dev_minor == d.Minor) {
			found = []Holder{p.holder("has "+path+" open", false)}
		}
	}
	return found, nil
}

// usesMounts returns the process if it has a file of one of the mounts open, mapped or as its directory.
func (p process) usesMounts(mounts []Entry) ([]Holder, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	on := func(id int) bool { return slices.ContainsFunc(mounts, func(e Entry) bool { return e.ID == id }) }
	for _, dir := range []string{"cwd", "root"} {
		link := filepath.Join(p.dir, dir)
		if id, err := p.mountOf(dir); err == nil && on(id) {
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
	return p.mapsMounts(mounts, on)
}

// mapsMounts returns the process if it has a file of one of the mounts mapped.
func (p process) mapsMounts(mounts []Entry, on func(id int) bool) ([]Holder, error) {
	mapped, err := p.mapped(func(major, minor int) bool {
		return slices.ContainsFunc(mounts, func(e Entry) bool { return e.Major == major && e.Minor == minor })
	})
	if err != nil {
		return nil, err
	}
	for _, m := range mapped {
		id := 0
		mapped, err := p.examine(m, func(link string) (err error) { id, err = p.mountOf(link); return err })
		if err != nil {
			return nil, err
		}
		if mapped && on(id) {
			return []Holder{p.holder("has "+m.path+" mapped", false)}, nil
		}
	}
	return nil, nil
}

// stat describes what one of the links of the process leads to, without asking a server.
func (p process) stat(link string) (unix.Statx_t, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, filepath.Join(p.dir, link), unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT,
		unix.STATX_TYPE|unix.STATX_INO|unix.STATX_MNT_ID, &stat)
	return stat, err
}

// descriptor is what fdinfo contains about a file descriptor.
type descriptor struct {
	mount  int
	writes bool
}

func (p process) describe(fd string) (descriptor, error) {
	data, err := os.ReadFile(filepath.Join(p.dir, "fdinfo", fd))
	if err != nil {
		return descriptor{}, err
	}
	var d descriptor
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "flags":
			flags, err := strconv.ParseUint(value, 8, 64)
			if err != nil {
				return descriptor{}, err
			}
			d.writes = flags&unix.O_ACCMODE != unix.O_RDONLY
		case "mnt_id":
			if d.mount, err = strconv.Atoi(value); err != nil {
				return descriptor{}, err
			}
		}
	}
	return d, nil
}

// local are filesystems without a device that answer from memory and may contain device nodes.
var local = []string{"devtmpfs", "tmpfs", "ramfs", "overlay", "btrfs", "zfs"}

// remote reports whether a stat of a file of the mount may hang, on a server or process that does not answer. A device
// node is never open there.
func (e Entry) remote() bool { return e.Major == 0 && !slices.Contains(local, e.FSType) }

// remote reports the same of the mount with that ID. The table has noted all such mounts.
func (t *Table) remote(id int) bool {
	i, kept := t.number(id)
	_, omitted := slices.BinarySearch(t.omitted, id)
	return kept && t.entries[i].remote() || omitted
}

// onFUSE reports whether the file at path is on a FUSE filesystem, whose daemon may refuse root.
func (t *Table) onFUSE(path string) bool {
	e, known := t.Shown(path)
	return known && strings.HasPrefix(e.FSType, "fuse")
}

func (p process) holder(use string, writes bool) Holder {
	h := Holder{PID: p.pid, Use: use, Writes: writes}
	// Both are only information for the message.
	if name, err := os.ReadFile(filepath.Join(p.dir, "comm")); err == nil {
		h.Command = strings.TrimSpace(string(name))
	}
	if groups, err := os.ReadFile(filepath.Join(p.dir, "cgroup")); err == nil {
		h.PodUID = podOf(string(groups))
	}
	return h
}

var podGroup = regexp.MustCompile(
	`/(?:[^/\n]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|\n|$)`)

// podOf finds the pod's UID in the content of a cgroup file: .../pod<uid>/... or, with systemd, ...-pod<uid_>.slice/...
func podOf(groups string) string {
	match := podGroup.FindStringSubmatch(groups)
	if match == nil {
		return ""
	}
	return strings.ReplaceAll(match[1], "_", "-")
}

// AwaitExit returns when the process or ctx has ended.
func AwaitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	stop := context.AfterFunc(ctx, func() { _ = file.Close() }) // ends the wait
	defer func() {
		if stop() {
			_ = file.Close() // nothing was written to it
		}
	}()
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failed = err
		}
		return n > 0 || failed != nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, failed)
}
