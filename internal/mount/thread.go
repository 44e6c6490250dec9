/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

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
