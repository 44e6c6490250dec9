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
	"strings"

	"golang.org/x/sys/unix"
)

// HeldError means that something on the node still uses a block device.
type HeldError struct {
	Device  Device
	Holders []Holder
	// Claimed is true if a filesystem or another device is on it. The kernel then refuses an exclusive open.
	Claimed bool
	// Namespaces are the mount namespaces that something keeps although no process is in them. They are only searched for
	// if there are no holders, and any of them may have the device mounted.
	Namespaces []string
}

// Holder keeps a device in use: a process or, with PID 0, the kernel for another device.
type Holder struct {
	PID     int
	Command string
	// PodUID of the process, if its control group belongs to a pod.
	PodUID string
	// Use is how the holder uses the device, and under which path.
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

// shownHolders is how many holders a message names.
const shownHolders = 3

func (e *HeldError) Error() string {
	if len(e.Holders) == 0 {
		return e.withoutHolders()
	}
	var names []string
	for _, h := range e.Holders[:min(shownHolders, len(e.Holders))] {
		names = append(names, h.String())
	}
	more := ""
	if len(e.Holders) > shownHolders {
		more = fmt.Sprintf("; and %d more", len(e.Holders)-shownHolders)
	}
	text := fmt.Sprintf("%s is still in use by %s%s", e.Device.Path, strings.Join(names, "; "), more)
	return strings.ToValidUTF8(text, "\uFFFD") // names of files and processes are any bytes, and the API takes text only
}

// withoutHolders names what keeps a filesystem that no process uses. A freeze outlives the last mount.
func (e *HeldError) withoutHolders() string {
	found := "none was found"
	if len(e.Namespaces) > 0 {
		found = "found: " + strings.Join(e.Namespaces, "; ")
	}
	text := fmt.Sprintf("%s is still in use, but no process uses it. Either its filesystem is frozen: mount it on the "+
		"node, run fsfreeze -u on it and unmount it. Or a mount namespace without a process has it mounted (%s): unmount "+
		"or close what keeps the namespace", e.Device.Path, found)
	return strings.ToValidUTF8(text, "\uFFFD")
}

// CheckFree returns nil if nothing on the node uses the block device any more, in any mount namespace. It also returns
// nil if the device is gone, or if another device has its number. A *HeldError names the users. After any other error
// the answer is unknown.
//
// The kernel decides: CheckFree opens the device exclusively, which fails while a filesystem or another device is on
// it. That does not detect a process that only has a raw device open or mapped. With raw, CheckFree also asks every
// thread of every process. A process of a pod that cannot be examined counts as a user.
func (m *Mounter) CheckFree(ctx context.Context, d Device, raw bool) error {
	return m.run(ctx, reads, "exclusive open", d.number(), func() error {
		now, busy, err := openExclusively(d)
		if err != nil {
			return fmt.Errorf("opening device %s exclusively: %w", d.number(), err)
		}
		if now.Path == "" || !busy && !raw {
			return nil
		}
		holders, err := m.holdersOf(ctx, now, raw && !busy)
		if err != nil {
			return fmt.Errorf("finding the users of %s: %w", now.Path, err)
		}
		if !busy && len(holders) == 0 {
			return nil
		}
		held := &HeldError{Device: now, Holders: holders, Claimed: busy}
		if table, err := m.Table(); err == nil && len(holders) == 0 {
			held.Namespaces = table.keptNamespaces()
		}
		return held
	})
}

// openExclusively reports whether the device is busy. A device that is gone has no path.
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

// errGone means that the device disappeared during the check.
var errGone = errors.New("the device is gone")

// number of the device, as the kernel writes it.
func (d Device) number() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// present returns the device with its present name, or without one if it is gone. The disk's sequence number, which the
// kernel never reuses, distinguishes it from a later device with the same number.
func (d Device) present() (Device, error) {
	now, err := named(d.Major, d.Minor)
	if err != nil || d.Seq != 0 && now.Seq != d.Seq {
		return Device{}, err
	}
	return now, nil
}

// open opens the device by its name and verifies that it is the same device.
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
	if err = unix.Fstat(fd, &stat); err == nil &&
		(stat.Mode&unix.S_IFMT != unix.S_IFBLK || stat.Rdev != unix.Mkdev(d.Major, d.Minor)) {
		err = fmt.Errorf("%s is another device", d.Path)
	}
	if err == nil {
		// While it is open, its number cannot be reused.
		if now, again := d.present(); again != nil || now.Path == "" {
			err = errors.Join(errGone, again)
		}
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// holdersOf finds the processes that have the device mounted, open or mapped, and the devices that are made of it. It
// ignores this process. With all, a pod's process that cannot be examined is one of them: no other answer protects the
// device. The node's own processes use no device of a volume.
//
// A process may start another one and end before it is asked. So what has started meanwhile is asked too.
func (m *Mounter) holdersOf(ctx context.Context, d Device, all bool) ([]Holder, error) {
	holders, err := m.devicesOver(ctx, d)
	if err != nil {
		return nil, err
	}
	const rounds = 3
	asked, tables, files := map[int]bool{}, map[string]*Table{}, map[string]bool{}
	for range rounds {
		pids, err := processes()
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if asked[pid] {
				continue
			}
			asked[pid] = true
			found, err := askThreads(pid, func(thread process) ([]Holder, error) {
				return thread.uses(d, tables, files)
			})
			if found, err = processOf(pid).answer(found, err, all); err != nil {
				return nil, fmt.Errorf("reading process %d: %w", pid, err)
			}
			holders = append(holders, found...)
		}
	}
	return holders, nil
}

// answer is what the threads of the process have answered. With all, a pod's process that cannot be examined is a user.
func (p process) answer(found []Holder, err error, all bool) ([]Holder, error) {
	switch {
	case errors.Is(err, fs.ErrPermission): // a security policy hides it even from root
		if h := p.holder("cannot be examined", true); all && h.PodUID != "" {
			found = append(found, h)
		}
		return found, nil
	case ended(err):
		return found, nil
	}
	return found, err
}

// keptNamespaces are the mount namespaces without a process that a bind mount or a descriptor keeps. They are for
// messages only, so what cannot be read is left out.
func (t *Table) keptNamespaces() []string {
	inhabited, kept := map[string]bool{}, map[string]string{}
	for e := range t.all() {
		if e.FSType == "nsfs" {
			kept[e.Root] = "kept by the mount at " + e.Path
		}
	}
	pids, err := processes()
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		p := processOf(pid)
		inhabited[p.namespace()] = true
		open, err := filepath.Glob(filepath.Join(p.dir, "fd", "*"))
		if err != nil {
			continue
		}
		for _, path := range open {
			if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, mountNamespace) {
				kept[target] = p.holder("has it open", false).String()
			}
		}
	}
	var found []string
	for namespace, by := range kept {
		if strings.HasPrefix(namespace, mountNamespace) && !inhabited[namespace] {
			found = append(found, namespace+", "+by)
		}
	}
	slices.Sort(found)
	return found[:min(shownHolders, len(found))]
}

// mountNamespace begins the kernel's name of a mount namespace.
const mountNamespace = "mnt:["

// devicesOver finds the devices that the kernel made of this device: device mapper and similar, and loop devices.
func (m *Mounter) devicesOver(ctx context.Context, d Device) ([]Holder, error) {
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
		backing, err := m.backingDevice(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading loop device %s of %q: %w", name, backingFile(name), err)
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

// backingDevice is the number of the device that a loop device is made of, or 0 for a file. The name of the file does
// not decide that: nodes of devices are bound to any path, and the name may be that of another mount namespace. So the
// kernel asks the filesystem, whose server may not answer. One call waits for it, and others are refused meanwhile.
func (m *Mounter) backingDevice(ctx context.Context, loop string) (uint64, error) {
	found := make(chan uint64, 1)
	err := m.run(ctx, reads, "lookup of the backing file", loop, func() error {
		number, err := m.backingNumber(loop)
		found <- number
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-found, nil
}

func (m *Mounter) backingNumber(loop string) (number uint64, err error) {
	fd, err := unix.Open("/dev/"+loop, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	info, err := unix.IoctlLoopGetStatus64(fd)
	switch {
	case errors.Is(err, unix.ENXIO), ofFile(err): // ENXIO: it is not set up any more
		return 0, nil
	case errors.Is(err, unix.EACCES):
		if table, failed := m.Table(); failed == nil && table.onFUSE(backingFile(loop)) {
			return 0, nil
		}
	}
	if err != nil {
		return 0, err
	}
	return info.Rdevice, nil
}

// backingFile is the path that the kernel shows for the file of a loop device; empty if that is not known.
func backingFile(loop string) string {
	path, _ := os.ReadFile(filepath.Join("/sys/block", loop, "loop/backing_file"))
	return strings.TrimSuffix(string(path), "\n")
}
