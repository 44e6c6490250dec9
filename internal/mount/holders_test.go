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
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/holder"
)

func held(err error) *HeldError {
	var held *HeldError
	if errors.As(err, &held) {
		return held
	}
	return nil
}

func TestAPrivateCopyOfAMountKeepsTheDeviceInUse(t *testing.T) {
	needsRoot(t)
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			path, target := filesystem(t, dir, fsType), mkdir(t, dir, "target")
			mountAt(t, path, target, fsType)
			table, err := m.Table()
			if err != nil {
				t.Fatal(err)
			}
			e, _ := table.At(target)
			device, err := m.DeviceUnder(e)
			if err != nil || device.Path != path || device.Seq == 0 {
				t.Fatalf("device under %s: %+v, error %v; want %s with a sequence number", target, device, err, path)
			}
			p, _ := holder.Container(t, target)
			if err := m.Unmount(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			err = m.CheckFree(t.Context(), device, false)
			held := held(err)
			if held == nil || len(held.Holders) != 1 || held.Holders[0].PID != p.PID || !strings.Contains(held.Error(), "(sh)") {
				t.Errorf("holders of device %s: %v, want process %d (sh) alone", path, held, p.PID)
			}
			p.End()
			awaitFree(t, m, device, false)
		})
	}
}

// Of the processes that share mounts, one is named for the mount, and each for what it has open.
func TestEachProcessWithAFileOfAPrivateCopyIsNamedOnEveryFilesystem(t *testing.T) {
	needsRoot(t)
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			path, target := filesystem(t, dir, fsType), mkdir(t, dir, "target")
			mountAt(t, path, target, fsType)
			write(t, filepath.Join(target, "file"), "content")
			device := deviceAt(t, path)
			p := holder.Receiver(t, "mount --make-rprivate /; mount --bind "+target+" /mnt; exec 8<&0; "+
				"(exec 7</mnt/file; read end <&8) & echo $! >/mnt/pid")
			child := strings.TrimSpace(read(t, inside(p, "/mnt/pid")))
			if err := m.Unmount(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			h := held(m.CheckFree(t.Context(), device, false))
			if h == nil || !strings.Contains(h.Error(), "process "+child+" (sh), which has /mnt/file open") {
				t.Errorf("holders of device %s: %v, want process %s with its file among them", path, h, child)
			}
			p.End()
			awaitFree(t, m, device, false)
		})
	}
}

// awaitFree waits for the kernel, which removes the mounts of an ended process asynchronously.
func awaitFree(t *testing.T, m *Mounter, d Device, raw bool) {
	t.Helper()
	for t.Context().Err() == nil {
		err := m.CheckFree(t.Context(), d, raw)
		if err == nil {
			return
		}
		if held(err) == nil {
			t.Fatalf("device %s, which is to become free: error %v, want none or its holders", d.Path, err)
		}
	}
}

func TestAnOpenFileOfALazilyUnmountedFilesystemNamesItsProcess(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path, target := filesystem(t, dir, "ext4"), mkdir(t, dir, "target")
	mountAt(t, path, target, "ext4")
	p := holder.Start(t, "exec 7>"+filepath.Join(target, "file"), nil)
	device := deviceAt(t, path)
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	held := held(m.CheckFree(t.Context(), device, false))
	if held == nil || len(held.Holders) != 1 || held.Holders[0].PID != p.PID {
		t.Errorf("holders of device %s: %v, want process %d alone", path, held, p.PID)
	}
	p.End()
	awaitFree(t, m, device, false)
}

func deviceAt(t *testing.T, path string) Device {
	t.Helper()
	device, isBlock, err := blockDevice(path)
	if err != nil || !isBlock {
		t.Fatalf("%s: block device %t, error %v; want a block device", path, isBlock, err)
	}
	return device
}

func TestARawDeviceThatAProcessHasOpenIsInUse(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path := loopDevice(t, dir, 1<<20)
	device := deviceAt(t, path)
	node := filepath.Join(dir, "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(device.Major, device.Minor))); err != nil {
		t.Fatal(err)
	}
	awaitFree(t, m, device, true)
	for script, writes := range map[string]bool{"exec 7<" + path: false, "exec 7<>" + node: true} {
		p := holder.Start(t, script, nil)
		if err := m.CheckFree(t.Context(), device, false); err != nil {
			t.Errorf("device %s after %s: error %v, want that an open descriptor does not hold it exclusively", path, script,
				err)
		}
		held := held(m.CheckFree(t.Context(), device, true))
		if held == nil || len(held.Holders) != 1 || held.Holders[0].PID != p.PID || held.Holders[0].Writes != writes {
			t.Errorf("holders of device %s after %s: %v, want process %d with writes %t", path, script, held, p.PID, writes)
		}
		p.End()
		awaitFree(t, m, device, true)
	}
}

func TestADeviceThatIsMadeOfARawDeviceUsesIt(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path, bound := loopDevice(t, dir, 1<<20), write(t, filepath.Join(dir, "bound"), "")
	if err := m.Bind(t.Context(), path, bound, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{path, bound} { // a kubelet makes its loop devices of bound nodes
		over := command(t, "losetup", "--find", "--show", "--read-only", node)
		held := held(m.CheckFree(t.Context(), deviceAt(t, path), true))
		if held == nil || !strings.Contains(held.Error(), over) {
			t.Errorf("holders of device %s: %v, want device %s, which is made of %s", path, held, over, node)
		}
		command(t, "losetup", "--detach", over)
		awaitFree(t, m, deviceAt(t, path), true)
	}
}

func TestALoopDeviceWithoutItsFileKeepsNoOtherDevice(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	target := mkdir(t, dir, "target")
	mountAt(t, filesystem(t, dir, "xfs"), target, "xfs")
	dead, device := loopDevice(t, target, 1<<20), deviceAt(t, loopDevice(t, dir, 1<<20))
	if err := m.ShutdownFilesystem(t.Context(), target, nil, dir); err != nil {
		t.Fatal(err)
	}
	if number, err := m.backingNumber(filepath.Base(dead)); number != 0 || err != nil {
		t.Errorf("device that %s is made of: %#x, error %v; want that it is a file", dead, number, err)
	}
	awaitFree(t, m, device, true)
}

func TestAnErrorThatOnlyTheFilesystemOfAFileHasShowsThatALoopDeviceIsOfAFile(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EIO: true, unix.ESTALE: true, unix.ENOTCONN: true, unix.EREMOTEIO: true, unix.EHOSTDOWN: true,
		unix.ETIMEDOUT: true, unix.EACCES: false, unix.EPERM: false, unix.EINTR: false, unix.ENOMEM: false, nil: false,
	} {
		if got := ofFile(err); got != want {
			t.Errorf("loop device whose status has error %v is of a file: %t, want %t", err, got, want)
		}
	}
	table := NewTable([]Entry{{ID: 1, Path: "/", FSType: "ext4"}, {ID: 2, ParentID: 1, Path: "/f", FSType: "fuse.x"},
		{ID: 3, ParentID: 2, Path: "/f/node", FSType: "devtmpfs", Root: "/sdb"}})
	for path, want := range map[string]bool{"/f/file": true, "/f/node": false, "/file": false, "": false} {
		if got := table.onFUSE(path); got != want {
			t.Errorf("file %q is on a FUSE filesystem: %t, want %t", path, got, want)
		}
	}
}

func TestALoopDeviceWhoseFileDoesNotAnswerIsNamed(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	silent, device := filepath.Base(loopDevice(t, dir, 1<<20)), deviceAt(t, loopDevice(t, dir, 1<<20))
	ctx, giveUp := context.WithCancel(t.Context())
	answer := make(chan struct{})
	defer close(answer)
	if err := m.run(ctx, reads, "lookup", silent, func() error { giveUp(); <-answer; return nil }); !isPending(err) {
		t.Fatalf("lookup of %s that does not answer: error %v, want a PendingError", silent, err)
	}
	err := m.CheckFree(t.Context(), device, true)
	if !isPending(err) || !strings.Contains(err.Error(), silent) || !strings.Contains(err.Error(), dir) {
		t.Errorf("device beside %s, which does not answer: error %v, want one at once that names it and its file in %s",
			silent, err, dir)
	}
}

func TestAnotherDeviceWithTheSameNumberIsNotTheDevice(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path, target := filesystem(t, dir, "ext4"), mkdir(t, dir, "target")
	before := deviceAt(t, path)
	mountAt(t, path, target, "ext4")
	if err := m.CheckFree(t.Context(), before, false); held(err) == nil {
		t.Errorf("device %s, which is mounted: error %v, want that it is held", path, err)
	}
	before.Seq--
	if err := m.CheckFree(t.Context(), before, true); err != nil {
		t.Errorf("device %s with an earlier sequence number: error %v, want none, as it is gone", path, err)
	}
	before.Minor = 1 << 19
	if err := m.CheckFree(t.Context(), before, true); err != nil {
		t.Errorf("device with minor number %d, which has no name: error %v, want none", before.Minor, err)
	}
}

func TestAFilesystemWithoutADeviceHasNone(t *testing.T) {
	for _, e := range []Entry{{FSType: "nfs4", Source: "server:/export"}, {FSType: "fuse.x", Source: "/some/where"},
		{FSType: "tmpfs", Source: "tmpfs"}} {
		if d, err := New(Options{}).DeviceUnder(e); err != nil || d.Path != "" {
			t.Errorf("device under a mount of %s: %+v, error %v; want no path", e.FSType, d, err)
		}
	}
}

func TestWhatKeepsAFilesystemWithoutAProcessIsNamed(t *testing.T) {
	needsRoot(t)
	for name, test := range map[string]struct {
		keep func(t *testing.T, dir, target string) (end func())
		want []string
	}{
		"a freeze": {func(t *testing.T, _, target string) func() {
			device := deviceOf(t, target)
			command(t, "fsfreeze", "--freeze", target)
			return func() {
				mountAt(t, device, target, "ext4")
				command(t, "fsfreeze", "--unfreeze", target)
				command(t, "umount", target)
			}
		}, []string{"fsfreeze -u", "none was found"}},
		"a mount namespace that is bound to a file": {func(t *testing.T, dir, _ string) func() {
			file := keptNamespace(t, dir)
			return func() { command(t, "umount", file) }
		}, []string{"kept by the mount at ", "/namespace"}},
		"a mount namespace that a process has open": {func(t *testing.T, _, target string) func() {
			inside, _ := holder.Container(t, target)
			p := holder.Start(t, fmt.Sprintf("exec 7</proc/%d/ns/mnt", inside.PID), nil)
			inside.End()
			return p.End
		}, []string{"(sh), which has it open"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			path, target := filesystem(t, dir, "ext4"), mkdir(t, dir, "target")
			mountAt(t, path, target, "ext4")
			end := test.keep(t, dir, target)
			device := deviceAt(t, path)
			if err := m.Unmount(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			err := m.CheckFree(t.Context(), device, false)
			for _, want := range test.want {
				if held(err) == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("device %s, which %s keeps: error %v, want that it is held, with %q", path, name, err, want)
				}
			}
			end()
			awaitFree(t, m, device, false)
		})
	}
}

// keptNamespace is the file of a mount namespace with a private copy of every mount, and without a process.
func keptNamespace(t *testing.T, dir string) string {
	t.Helper()
	place := mkdir(t, dir, "place")
	command(t, "mount", "-t", "tmpfs", "--make-private", "place", place)
	t.Cleanup(func() {
		if err := unix.Unmount(place, 0); err != nil {
			t.Errorf("unmounting %s: error %v, want none", place, err)
		}
	})
	file := filepath.Join(place, "namespace")
	write(t, file, "")
	command(t, "unshare", "--mount="+file, "true")
	return file
}

func deviceOf(t *testing.T, target string) string {
	t.Helper()
	table, err := New(Options{}).Table()
	if err != nil {
		t.Fatal(err)
	}
	e, _ := table.At(target)
	return e.Source
}

func TestTheNamesOfHoldersAreText(t *testing.T) {
	h := &HeldError{Holders: []Holder{{PID: 1, Command: "caf\xc3", Use: "has /data/\xff open"}}}
	if !utf8.ValidString(h.Error()) || !strings.Contains(h.Error(), "/data/") {
		t.Errorf("error with names that are no text: %q, want valid UTF-8 with the path", h.Error())
	}
}

func TestThePodOfAProcessIsFound(t *testing.T) {
	const uid = "0123abcd-4567-89ab-cdef-0123456789ab"
	for groups, want := range map[string]string{
		"0::/kubepods/burstable/pod" + uid + "/4f5e\n":                                                        uid,
		"0::/kubepods.slice/kubepods-pod0123abcd_4567_89ab_cdef_0123456789ab.slice/cri-containerd-4f.scope\n": uid,
		"0::/../../kubepods-besteffort-pod0123abcd_4567_89ab_cdef_0123456789ab.slice\n":                       uid,
		"12:cpu:/kubepods/pod" + uid + "\n11:memory:/\n":                                                      uid,
		"0::/system.slice/podman-0123abcd.scope\n":                                                            "",
		"0::/\n": "",
		"0::/system.slice/tripod0123abcd-4567-89ab-cdef-0123456789ab/x\n": "",
	} {
		if got := podOf(groups); got != want {
			t.Errorf("pod of control groups %q: %q, want %q", groups, got, want)
		}
	}
}

func TestTheEndOfAProcessIsAwaited(t *testing.T) {
	p := holder.Start(t, ":", nil)
	ctx, cancel := context.WithCancel(t.Context())
	awaited := make(chan error)
	go func() { awaited <- AwaitExit(ctx, p.PID) }()
	cancel()
	if err := <-awaited; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for process %d with an ended context: error %v, want %v", p.PID, err, context.Canceled)
	}
	go func() { awaited <- AwaitExit(t.Context(), p.PID) }()
	p.End()
	if err := <-awaited; err != nil {
		t.Error(err)
	}
}

func TestAProcessOfAPodThatCannotBeExaminedUsesARawDevice(t *testing.T) {
	in := func(group string) process {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "cgroup"), "0::"+group+"\n")
		return process{pid: 7, dir: dir}
	}
	pod, node := in("/kubepods/pod0123abcd-4567-89ab-cdef-0123456789ab/4f"), in("/system.slice/sshd.service")
	for name, c := range map[string]struct {
		process process
		err     error
		raw     bool
		users   int
		fails   bool
	}{
		"hidden, of a pod":                     {pod, fs.ErrPermission, true, 1, false},
		"hidden, of the node":                  {node, fs.ErrPermission, true, 0, false},
		"hidden, where the kernel has decided": {pod, fs.ErrPermission, false, 0, false},
		"ended":                                {pod, unix.ESRCH, true, 0, false},
		"unreadable":                           {pod, unix.EIO, true, 0, true},
		"examined":                             {pod, nil, true, 0, false},
	} {
		users, err := c.process.answer(nil, c.err, c.raw)
		if len(users) != c.users || (err != nil) != c.fails {
			t.Errorf("process that is %s: users %v, error %v; want %d, and an error: %t", name, users, err, c.users, c.fails)
		}
	}
}
