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
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/hawser-io/hawser/internal/mount/scsi"
)

// Exit codes of blkid's low-level probing.
const (
	blkidNothingFound = 2
	blkidAmbivalent   = 8
)

// Health is what the kernel shows of a mounted filesystem, or of a device node, whether or not it answers.
type Health struct {
	// Failed is the kernel's option for a filesystem that takes no more writes since an error: emergency_ro or shutdown.
	Failed string
	// DeviceGone: the kernel has no device of that number any more.
	DeviceGone bool
	// DeadDisks are the device's if the kernel sends no requests to any of them.
	DeadDisks []scsi.DeadDisk
	// Errors that the filesystem has counted, also in earlier mounts; nil for one that counts none. Before Linux 6.12 ext4
	// shows only by them that it is read-only.
	Errors *int64
}

// Examine returns the health of what is mounted at path. The error is what an access to its root gave: a *PendingError
// if it did not answer. One call that hangs keeps one goroutine, and others are refused meanwhile. Nothing is changed.
func (m *Mounter) Examine(ctx context.Context, path string) (Health, error) {
	path = filepath.Clean(path)
	_, e, mounted, err := m.At(path)
	if err != nil {
		return Health{}, err
	}
	if !mounted {
		return Health{}, ErrNotMounted
	}
	node := make(chan Device, 1)
	err = m.run(ctx, examinations, "examination", path, func() error {
		d, isBlock, err := blockDevice(path)
		if isBlock && err == nil {
			node <- d
			return nil
		}
		if err == nil {
			err = ignoringEINTR(func() error { return unix.Statfs(path, &unix.Statfs_t{}) })
		}
		return err
	})
	select {
	case d := <-node: // a bound device node is a mount of the filesystem that has the node
		return healthOf(d), err
	default:
		return e.health(), err
	}
}

// Failed is the option with which the kernel shows that the filesystem takes no more writes since an error, or was shut
// down; empty for one that works.
func (e Entry) Failed() string {
	for _, option := range []string{"emergency_ro", "shutdown"} {
		if slices.Contains(e.SuperOptions, option) {
			return option
		}
	}
	return ""
}

// health is what the kernel shows without an access to the filesystem.
func (e Entry) health() Health {
	var h Health
	d, err := named(uint32(e.Major), uint32(e.Minor))
	if e.Major != 0 && err == nil {
		h = healthOf(d)
	}
	h.Failed = e.Failed()
	if d.Path == "" {
		return h
	}
	data, err := os.ReadFile(filepath.Join("/sys/fs", e.FSType, filepath.Base(d.Path), "errors_count"))
	if err != nil {
		return h
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
		h.Errors = &n
	}
	return h
}

// healthOf is what the kernel shows of a device that it was asked for.
func healthOf(d Device) Health {
	if d.Path == "" {
		return Health{DeviceGone: true}
	}
	return Health{DeadDisks: scsi.DeadDisks(filepath.Join("/sys/dev/block", d.number()))}
}

func ignoringEINTR(f func() error) error {
	err := f()
	for errors.Is(err, unix.EINTR) {
		err = f()
	}
	return err
}

// Corrupted reports whether the error of an access shows that the mount works no more. EACCES does not: a FUSE daemon
// of another user may refuse root.
func Corrupted(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno != unix.EACCES && mountutils.IsCorruptedMnt(errno)
}

// Users are the processes that have a file of what is mounted at path open, mapped or as their directory, by whatever
// mount that shows the same or a part of it. A process of a pod that cannot be examined counts as one.
func (m *Mounter) Users(ctx context.Context, path string) ([]Holder, error) {
	path = filepath.Clean(path)
	table, err := m.Table()
	if err != nil {
		return nil, err
	}
	e, mounted := table.At(path)
	if !mounted {
		return nil, nil
	}
	found := make(chan []Holder, 1)
	err = m.run(ctx, reads, "search for users", path, func() error {
		users, err := e.users()
		found <- users
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

func (e Entry) users() ([]Holder, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	var holders []Holder
	tables := map[string]*Table{}
	for _, pid := range pids {
		found, err := askThreads(pid, func(thread process) ([]Holder, error) {
			table, _, err := thread.table(tables, func(t *Table) *Table {
				return t.only(func(o Entry) bool { return o.PartOf(e) })
			})
			if err != nil {
				return nil, err
			}
			return thread.usesMounts(table.Entries())
		})
		switch {
		case ended(err):
		case errors.Is(err, fs.ErrPermission):
			if h := processOf(pid).holder("cannot be examined", false); h.PodUID != "" {
				holders = append(holders, h)
			}
		case err != nil:
			return nil, fmt.Errorf("reading process %d: %w", pid, err)
		default:
			holders = append(holders, found[:min(len(found), 1)]...)
		}
	}
	return holders, nil
}

// Probe returns what blkid finds on the device: a filesystem, a partition table, or nothing that blkid knows. Nothing
// is not proof of an empty device. The result is for messages only: nothing is ever formatted because of it.
func (m *Mounter) Probe(ctx context.Context, device string) (fsType, ptType string, err error) {
	found := make(chan map[string]string, 1)
	err = m.run(ctx, reads, "probe", device, func() error {
		// blkid has the same exit code for a device that it cannot open and for an empty one.
		file, err := os.Open(device)
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			return fmt.Errorf("probing: %w", err)
		}
		out, err := m.exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export",
			device).CombinedOutput()
		values, err := probed(string(out), err)
		if err != nil {
			return fmt.Errorf("probing %s: %w", device, err)
		}
		found <- values
		return nil
	})
	if err != nil {
		return "", "", err
	}
	values := <-found
	return values["TYPE"], values["PTTYPE"], nil
}

func probed(out string, err error) (map[string]string, error) {
	values := map[string]string{}
	var exit exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitStatus() == blkidNothingFound:
		return values, nil
	case errors.As(err, &exit) && exit.ExitStatus() == blkidAmbivalent:
		return nil, ErrAmbiguous
	case err != nil:
		return nil, fmt.Errorf("running blkid: %w: %s", err, strings.TrimSpace(out))
	}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	return values, nil
}

// programs that a driver on this node needs to create and check a filesystem.
var programs = map[string][]string{
	"ext2":  {"mkfs.ext2", "fsck.ext2"},
	"ext3":  {"mkfs.ext3", "fsck.ext3"},
	"ext4":  {"mkfs.ext4", "fsck.ext4"},
	"xfs":   {"mkfs.xfs"},
	"btrfs": {"mkfs.btrfs"},
}

// KnownFilesystem reports whether Hawser knows fsType. The empty string is the driver's choice.
func KnownFilesystem(fsType string) bool {
	_, ok := programs[fsType]
	return ok || fsType == ""
}

// MissingPrograms returns the programs that a filesystem needs and that are not found. The agent searches its own
// surroundings; a driver in a container of its own brings its own programs.
func (m *Mounter) MissingPrograms(fsType string) []string {
	var missing []string
	for _, program := range programs[fsType] {
		if _, err := m.exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
}
