/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// Node is the device that a device node leads to now. A node leads to a number, which the kernel gives again.
	Node Device
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
		h := healthOf(d)
		h.Node = d
		return h, err
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

// ofFile reports whether only the filesystem of a file answers so: it was shut down, or has lost its daemon or server.
// Those with device nodes answer from memory.
func ofFile(err error) bool {
	return Corrupted(err) || errors.Is(err, unix.EREMOTEIO) || errors.Is(err, unix.ETIMEDOUT)
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

// identifying is how many bytes at the beginning and at the end of a device tell blkid what is on it.
const identifying = 256 << 10

// CheckReadable reads the beginning and the end of the block device from the disk, past the kernel's cache. It returns
// nil if that succeeds, if the device is gone, or if another device has its number. To a driver that looks for a
// filesystem with blkid, a device that cannot be read may seem empty, and is then formatted. Devices below this one are
// not read: multipath works without some of its paths.
func (m *Mounter) CheckReadable(ctx context.Context, d Device) error {
	// As an examination it keeps no CheckFree away, while it hangs.
	return m.run(ctx, examinations, "device read", d.number(), func() error {
		now, err := d.present()
		if err != nil || now.Path == "" {
			return err
		}
		fd, err := now.open(unix.O_RDONLY | unix.O_DIRECT)
		if errors.Is(err, errGone) {
			return nil
		}
		if err == nil {
			err = errors.Join(readEnds(fd), unix.Close(fd))
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", now.Path, err)
		}
		return nil
	})
}

// readEnds uses memory of its own pages: direct reads need the device's alignment.
func readEnds(fd int) (err error) {
	size, err := unix.Seek(fd, 0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("finding its size: %w", err)
	}
	if size == 0 {
		return io.ErrUnexpectedEOF
	}
	buffer, err := unix.Mmap(-1, 0, identifying, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("mapping memory: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(buffer)) }()
	part := buffer[:min(size, identifying)]
	return errors.Join(readAt(fd, part, 0), readAt(fd, part, size-int64(len(part))))
}

func readAt(fd int, part []byte, at int64) error {
	for len(part) > 0 {
		n, err := unix.Pread(fd, part, at)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
		part, at = part[n:], at+int64(n)
	}
	return nil
}
