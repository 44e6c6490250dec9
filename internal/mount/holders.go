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

// HeldError says that something on the node still uses a block device.
type HeldError struct {
	Device  Device
	Holders []Holder
	// Claimed: a filesystem or another device is on it.
	Claimed bool
}

// Holder is what keeps a device in use: a process or, with PID 0, the kernel on behalf of another device.
type Holder struct {
	PID     int
	Command string
	// PodUID of the process, where its control group belongs to a pod.
	PodUID string
	// Use is what the holder does with the device, and under which path of its own.
	Use string
	// Writes is true if the holder has the device itself open for writing.
	Writes bool
}

func (h Holder) String() string {
	if h.PID == 0 {
		return h.Use
	}
	of := ""
	if h.PodUID != "" {
		of = " of pod " + h.PodUID
	}
	return fmt.Sprintf("process %d (%s)%s, which %s", h.PID, h.Command, of, h.Use)
}

func (e *HeldError) Error() string {
	const shown = 3
	if len(e.Holders) == 0 {
		return e.Device.Path + " is still in use, by nothing that /proc shows"
	}
	var names []string
	for _, h := range e.Holders[:min(shown, len(e.Holders))] {
		names = append(names, h.String())
	}
	more := ""
	if len(e.Holders) > shown {
		more = fmt.Sprintf("; and %d more", len(e.Holders)-shown)
	}
	return fmt.Sprintf("%s is still in use by %s%s", e.Device.Path, strings.Join(names, "; "), more)
}

// CheckFree returns nil if nothing on the node uses the block device any more, in no mount namespace, and also if the
// device is gone or its number belongs to another one by now. A *HeldError names who uses it. After any other error it is not known.
//
// The kernel decides: the device is opened exclusively, which fails while a filesystem or another device is on it. A
// process that merely has a raw device open is not seen that way; with raw the descriptors of all processes are read too.
func (m *Mounter) CheckFree(ctx context.Context, d Device, raw bool) error {
	return m.run(ctx, looks, "exclusive open", d.number(), func() error {
		now, busy, err := openExclusively(d)
		if err != nil {
			return fmt.Errorf("opening device %s exclusively: %w", d.number(), err)
		}
		if now.Path == "" || !busy && !raw {
			return nil
		}
		holders, err := holdersOf(now)
		if err != nil {
			return fmt.Errorf("reading who uses %s: %w", now.Path, err)
		}
		if busy || len(holders) > 0 {
			return &HeldError{Device: now, Holders: holders, Claimed: busy}
		}
		return nil
	})
}

// openExclusively says whether the device is claimed. A device that is gone has no path.
func openExclusively(d Device) (now Device, busy bool, err error) {
	now, err = d.present()
	if err != nil || now.Path == "" {
		return now, false, err
	}
	fd, err := now.open(unix.O_RDONLY | unix.O_EXCL)
	switch {
	case errors.Is(err, unix.EBUSY):
		return now, true, nil
	case errors.Is(err, errGone):
		return Device{}, false, nil
	case err != nil:
		return now, false, err
	}
	return now, false, unix.Close(fd)
}

// Writers are the holders that may write to the device.
func (e *HeldError) Writers() []Holder {
	if e.Claimed {
		return e.Holders
	}
	return slices.DeleteFunc(slices.Clone(e.Holders), func(h Holder) bool { return h.PID != 0 && !h.Writes })
}

// errGone: the device went away while it was looked at.
var errGone = errors.New("the device is gone")

// number of the device, as the kernel writes it.
func (d Device) number() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// present returns the device with its present name; without one if it is gone. The disk's sequence number, which the kernel
// gives out once, tells it from a later device with the same number.
func (d Device) present() (Device, error) {
	now, err := named(d.Major, d.Minor)
	if err != nil || d.Seq != 0 && now.Seq != d.Seq {
		return Device{}, err
	}
	return now, nil
}

// open opens the device by its name, and makes sure that it is the device.
func (d Device) open(flags int) (int, error) {
	fd, err := unix.Open(d.Path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(d.Path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		if now, again := d.present(); again == nil && now.Path == "" {
			return -1, errGone
		}
		return -1, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFBLK || stat.Rdev != unix.Mkdev(d.Major, d.Minor)) {
		err = fmt.Errorf("%s is another device", d.Path)
	}
	if err == nil {
		// While it is open it cannot become another one.
		if now, again := d.present(); again != nil || now.Path == "" {
			err = errors.Join(errGone, again)
		}
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// holdersOf names the processes that have the device mounted or open, and the devices that are made of it. It leaves this process out.
func holdersOf(d Device) ([]Holder, error) {
	holders, err := devicesOver(d)
	if err != nil {
		return nil, err
	}
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	tables := map[string]*Table{}
	for _, pid := range pids {
		p := process{pid: pid, dir: filepath.Join("/proc", strconv.Itoa(pid))}
		found, err := p.uses(d, tables)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission):
			// It has ended, or a security policy hides it even from who may trace every process.
		case err != nil:
			return nil, fmt.Errorf("reading process %d: %w", pid, err)
		}
		holders = append(holders, found...)
	}
	return holders, nil
}

// processes lists the node's processes but this one, the oldest numbers first.
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

// devicesOver finds the devices that the kernel made of this one: of device mapper and the like, and loop devices.
func devicesOver(d Device) ([]Holder, error) {
	var holders []Holder
	over, err := filepath.Glob("/sys/dev/block/" + d.number() + "/holders/*")
	if err != nil {
		return nil, err
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, dir := range loops {
		name := filepath.Base(filepath.Dir(dir))
		backing, err := backingDevice("/dev/" + name)
		if err != nil {
			return nil, fmt.Errorf("reading loop device %s: %w", name, err)
		}
		if backing == unix.Mkdev(d.Major, d.Minor) {
			over = append(over, name)
		}
	}
	for _, path := range over {
		holders = append(holders, Holder{Use: "device /dev/" + filepath.Base(path) + ", which is made of it"})
	}
	return holders, nil
}

// backingDevice is the number of the device that a loop device is made of; 0 for a file.
func backingDevice(loop string) (number uint64, err error) {
	fd, err := unix.Open(loop, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	info, err := unix.IoctlLoopGetStatus64(fd)
	if errors.Is(err, unix.ENXIO) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Rdevice, nil
}

// process is one of the node's, by its directory in /proc.
type process struct {
	pid int
	dir string
}

// uses lists what the process does with the device. Of those that share a mount namespace the first one stands for its mounts.
func (p process) uses(d Device, tables map[string]*Table) ([]Holder, error) {
	namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "mnt"))
	if err != nil {
		namespace = p.dir
	}
	var holders []Holder
	table, seen := tables[namespace]
	if !seen {
		if table, err = ReadTable(filepath.Join(p.dir, "mountinfo")); errors.Is(err, unix.EINVAL) {
			return nil, fs.ErrNotExist // a process that ends has no mounts any more
		} else if err != nil {
			return nil, err
		}
		tables[namespace] = table
		for _, e := range table.Entries() {
			if e.Major == int(d.Major) && e.Minor == int(d.Minor) || e.Major == 0 && e.Source == d.Path {
				holders = append(holders, p.holder("has it mounted at "+e.Path, false))
				break
			}
		}
	}
	opened, err := p.opened(d, table)
	return append(holders, opened...), err
}

// opened is the process if it has the device, or a file of its filesystem, open.
func (p process) opened(d Device, table *Table) ([]Holder, error) {
	entries, err := os.ReadDir(filepath.Join(p.dir, "fd"))
	if err != nil {
		return nil, err
	}
	var found []Holder
	for _, e := range entries {
		path, err := os.Readlink(filepath.Join(p.dir, "fd", e.Name()))
		if err != nil || !strings.HasPrefix(path, "/") {
			continue // closed, or no file
		}
		info, err := p.describe(e.Name())
		if err != nil || remote(table, info.mount) {
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
		if found == nil && (device || stat.Dev_major == d.Major && stat.Dev_minor == d.Minor) {
			found = []Holder{p.holder("has "+path+" open", false)}
		}
	}
	return found, nil
}

// descriptor is what fdinfo tells.
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

// local are the filesystems without a device of their own that answer from memory and may hold device nodes.
var local = []string{"devtmpfs", "tmpfs", "ramfs", "overlay", "btrfs", "zfs"}

// remote says whether a look at a file of that mount may hang, on a server or a process that does not answer. No device
// node is opened there.
func remote(table *Table, id int) bool {
	i, ok := table.byID[id]
	return ok && table.entries[i].Major == 0 && !slices.Contains(local, table.entries[i].FSType)
}

func (p process) holder(use string, writes bool) Holder {
	h := Holder{PID: p.pid, Use: use, Writes: writes}
	// Both only inform.
	if name, err := os.ReadFile(filepath.Join(p.dir, "comm")); err == nil {
		h.Command = strings.TrimSpace(string(name))
	}
	if groups, err := os.ReadFile(filepath.Join(p.dir, "cgroup")); err == nil {
		h.PodUID = podOf(string(groups))
	}
	return h
}

var podGroup = regexp.MustCompile(`/(?:[^/\n]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|\n|$)`)

// podOf finds the pod's UID in the content of a cgroup file: .../pod<uid>/... or, with systemd, ...-pod<uid_>.slice/...
func podOf(groups string) string {
	match := podGroup.FindStringSubmatch(groups)
	if match == nil {
		return ""
	}
	return strings.ReplaceAll(match[1], "_", "-")
}

// AwaitExit returns when the process has ended, or ctx has.
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
