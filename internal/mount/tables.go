/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ReadTable reads a mountinfo file. Since Linux 5.8 it contains every mount that exists throughout the read.
func ReadTable(path string) (*Table, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading mount table: %w", err)
	}
	return Parse(data)
}

// tables reads the table of a mountinfo file once for all who need it at a time. The kernel takes some 5 µs for a line,
// and a publication needs the table more than a dozen times.
type tables struct {
	path  string
	links Links

	mu sync.Mutex
	// file stays open: the kernel reports each change once for each open file.
	file *os.File
	// reports: it is the kernel's, and not a regular file as in a test.
	reports bool
	// last table, and when its read began. It is nil before the first one, and after a failure.
	last  *Table
	began time.Time
	// content is kept for the next read.
	content []byte

	known known
}

func newTables(path string, links Links) *tables {
	return &tables{path: path, links: links}
}

// get returns a table as it was after the call, or one of at most that age if the kernel has reported no change since.
// It does not report all: not which mounts share changes, for instance. Callers share the table, and must not change
// it.
func (t *tables) get(age time.Duration) (*Table, error) {
	called := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil && t.began.After(called) { // read while this call waited
		return t.last, nil
	}
	if err := t.open(); err != nil {
		return nil, err
	}
	changes, err := changed(t.file)
	if err != nil {
		return nil, err
	}
	if t.last != nil && t.reports && !changes && called.Sub(t.began) < age {
		return t.last, nil
	}
	return t.read()
}

// open opens the file unless it is open.
func (t *tables) open() (err error) {
	if t.file == nil {
		t.file, t.reports, err = openTable(t.path)
	}
	return err
}

// openTable opens a mountinfo file, and reports whether the kernel reports changes of it.
func openTable(path string) (file *os.File, reports bool, err error) {
	// Not os.Open: see Watcher.Start.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("opening mount table %s: %w", path, err)
	}
	var of unix.Statfs_t
	if err := unix.Fstatfs(fd, &of); err != nil {
		return nil, false, errors.Join(fmt.Errorf("opening mount table %s: %w", path, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), of.Type == unix.PROC_SUPER_MAGIC, nil
}

// changed reports whether something was mounted or unmounted since the last call for the open file, or may have been.
func changed(table *os.File) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(table.Fd()), Events: unix.POLLPRI | unix.POLLERR}}
	for {
		_, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return true, fmt.Errorf("asking for mount changes: %w", err)
		}
		return fds[0].Revents != 0, nil
	}
}

// read reads the table. What changes meanwhile is reported as a change afterwards.
func (t *tables) read() (*Table, error) {
	t.last, t.began = nil, time.Now()
	if err := t.readContent(); err != nil {
		return nil, fmt.Errorf("reading mount table: %w", err)
	}
	entries, err := parseEntries(t.content)
	if err != nil {
		return nil, err
	}
	t.last = newTable(entries, t.links)
	return t.last, nil
}

func (t *tables) readContent() error {
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t.content = t.content[:0]
	for {
		if len(t.content) == cap(t.content) {
			t.content = append(t.content, make([]byte, max(len(t.content), 32<<10))...)[:len(t.content)]
		}
		n, err := t.file.Read(t.content[len(t.content):cap(t.content)])
		t.content = t.content[:len(t.content)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
