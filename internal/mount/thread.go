/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a process of the node, with the directory of one of its threads in /proc.
type process struct {
	pid, thread int
	dir         string
}

// processOf is the process as its first thread shows it.
func processOf(pid int) process { return threadOf(pid, pid) }

func threadOf(pid, thread int) process {
	return process{pid: pid, thread: thread,
		dir: filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(thread))}
}

// threads are the threads of the process. Each may have descriptors, a mount namespace and a root of its own. The first
// one may have ended before the others: then it shows nothing of what they use.
func threads(pid int) ([]process, error) {
	first := processOf(pid)
	all := []process{first}
	entries, err := os.ReadDir(filepath.Dir(first.dir))
	if err != nil && !ended(err) {
		return nil, err
	}
	for _, e := range entries {
		if thread, err := strconv.Atoi(e.Name()); err == nil && thread != pid {
			all = append(all, threadOf(pid, thread))
		}
	}
	return all, nil
}

// askThreads asks every thread of the process that does not share its descriptors, root and mounts with one that was
// asked before.
func askThreads(pid int, ask func(process) ([]Holder, error)) ([]Holder, error) {
	all, err := threads(pid)
	if err != nil {
		return nil, err
	}
	var holders []Holder
	var asked []process
	for _, thread := range all {
		if slices.ContainsFunc(asked, thread.sharesFiles) {
			continue
		}
		found, err := ask(thread)
		if ended(err) {
			continue
		}
		if err != nil {
			return holders, err
		}
		holders, asked = append(holders, found...), append(asked, thread)
	}
	return holders, nil
}

// sharesFiles reports whether the kernel knows that both threads have the same descriptors, the same root and the same
// mounts. A kernel that does not answer has every thread asked.
func (p process) sharesFiles(o process) bool {
	const kcmpFiles, kcmpFS = 2, 3
	return p.same(o, kcmpFiles) && p.same(o, kcmpFS) && p.namespace() == o.namespace()
}

// same asks the kernel whether both threads share a resource.
func (p process) same(o process, kind uintptr) bool {
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(p.thread), uintptr(o.thread), kind, 0, 0, 0)
	return errno == 0 && order == 0
}

// mountOf returns the ID of the mount that one of the links of the process leads to. xfs that was shut down refuses to
// describe a file. The kernel's note of an open file has the mount too, and asks no filesystem.
func (p process) mountOf(link string) (id int, err error) {
	stat, err := p.stat(link)
	if !errors.Is(err, unix.EIO) {
		return int(stat.Mnt_id), err
	}
	fd, err := unix.Open(filepath.Join(p.dir, link), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	d, err := process{dir: "/proc/self"}.describe(strconv.Itoa(fd))
	return d.mount, errors.Join(err, unix.Close(fd))
}

// mapping is a part of a process's memory that has the content of a file.
type mapping struct {
	// link leads to the file, from the directory of the thread that has it mapped. The process's first one may have
	// ended, and then shows no mapping.
	link string
	// file is the number of the file's device and of its inode, and its path: of btrfs, subvolumes share the number.
	file, path string
}

// linkOf is the link to what a thread has mapped at these addresses. They are padded with zeros in its maps, but not in
// map_files.
func (p process) linkOf(addresses string) (string, error) {
	begin, end, _ := strings.Cut(addresses, "-")
	from, err := strconv.ParseUint(begin, 16, 64)
	if err != nil {
		return "", err
	}
	to, err := strconv.ParseUint(end, 16, 64)
	if err != nil {
		return "", err
	}
	return filepath.Join("..", "..", "..", strconv.Itoa(p.thread), "map_files", fmt.Sprintf("%x-%x", from, to)), nil
}

// mapped are the mappings of files of filesystems with these device numbers.
func (p process) mapped(of func(major, minor int) bool) ([]mapping, error) {
	data, err := os.ReadFile(filepath.Join(p.dir, "maps"))
	if err != nil {
		return nil, err
	}
	var found []mapping
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line) // address, permissions, offset, device, inode, path
		if len(fields) < 6 || fields[4] == "0" {
			continue // of no file
		}
		var major, minor int
		if _, err := fmt.Sscanf(fields[3], "%x:%x", &major, &minor); err != nil {
			return nil, fmt.Errorf("reading the mappings of process %d: %w", p.pid, err)
		}
		if !of(major, minor) {
			continue
		}
		link, err := p.linkOf(fields[0])
		if err != nil {
			return nil, fmt.Errorf("reading the mappings of process %d: %w", p.pid, err)
		}
		found = append(found, mapping{link: link, file: strings.Join(fields[3:], " "), path: fields[5]})
	}
	return found, nil
}

// examine calls look with a link to what is mapped. If the addresses have changed meanwhile, such as by a change of the
// protection of a part, it does so again with the present ones. It returns false if the process has given it up.
func (p process) examine(m mapping, look func(link string) error) (mapped bool, err error) {
	var last error
	for range 4 {
		if last = look(m.link); !ended(last) {
			return true, last
		}
		now, err := p.mapped(func(int, int) bool { return true })
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(now, func(o mapping) bool { return o.file == m.file })
		if i < 0 {
			return false, nil
		}
		m = now[i]
	}
	// Not wrapped: the process has not ended, which is what the error would show.
	return true, fmt.Errorf("process %d changes what it has mapped as %s: %s", p.pid, m.path, last.Error())
}
