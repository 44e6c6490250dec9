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
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/holder"
)

const (
	// firstThreadEnds is in the environment of a test program whose first thread is to end before the others.
	firstThreadEnds = "HAWSER_TEST_FIRST_THREAD_ENDS"
	// deviceOfThread is the device that a test program opens in a thread with descriptors of its own.
	deviceOfThread = "HAWSER_TEST_DEVICE_OF_THREAD"
	// deviceToMap is the device that a test program maps and closes.
	deviceToMap = "HAWSER_TEST_DEVICE_TO_MAP"
	// addressToMap is where it does, in hexadecimal digits. By default the kernel chooses.
	addressToMap = "HAWSER_TEST_ADDRESS_TO_MAP"
)

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		runtime.LockOSThread() // main runs in the first thread
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(deviceToMap); path != "" {
		if err := mapAndClose(path, os.Getenv(addressToMap)); err != nil || os.Getenv(firstThreadEnds) == "" {
			hold(err)
		}
	}
	if os.Getenv(firstThreadEnds) != "" {
		endFirstThread()
	}
	if path := os.Getenv(deviceOfThread); path != "" {
		hold(openInThread(path))
	}
	os.Exit(m.Run())
}

// hold reports to the test that the device is held, until the test closes the input.
func hold(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.ReadAll(os.Stdin)
	os.Exit(0)
}

// openInThread opens the device in a thread that shares its descriptors with no other.
func openInThread(path string) error {
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			_, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
		opened <- err
		select {} // keeps the thread
	}()
	return <-opened
}

// mapAndClose maps the device for writing, and closes its descriptor.
func mapAndClose(path, at string) error {
	address, flags := uint64(0), unix.MAP_SHARED
	if at != "" {
		var err error
		if address, err = strconv.ParseUint(at, 16, 64); err != nil {
			return err
		}
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(address), uintptr(os.Getpagesize()),
		unix.PROT_READ|unix.PROT_WRITE, uintptr(flags), uintptr(fd), 0); errno != 0 {
		return errno
	}
	return unix.Close(fd)
}

func TestARawDeviceIsInUse(t *testing.T) {
	needsRoot(t)
	maps := "export " + deviceToMap + "=%s; "
	for name, script := range map[string]string{
		"by a thread with descriptors of its own":        "export " + deviceOfThread + "=%s; exec " + os.Args[0],
		"by a mapping of which the descriptor is closed": maps + "exec " + os.Args[0],
		// The address is shorter in map_files than in maps.
		"by a mapping at a low address":                          maps + addressToMap + "=ffff000 exec " + os.Args[0],
		"by a mapping of a process whose first thread has ended": maps + "true" + withoutFirstThread(),
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			path := loopDevice(t, dir, 1<<20)
			device := deviceAt(t, path)
			p := holder.Start(t, fmt.Sprintf(script, path), nil)
			h := held(m.CheckFree(t.Context(), device, true))
			if h == nil || len(h.Writers()) != 1 || h.Holders[0].PID != p.PID {
				t.Errorf("holders of device %s: %v, want process %d alone, for writing", path, h, p.PID)
			}
			p.End()
			awaitFree(t, m, device, true)
		})
	}
}

// endFirstThread ends the thread that runs it. Another one waits until the test closes the input.
func endFirstThread() {
	state := fmt.Sprintf("/proc/self/task/%d/stat", unix.Getpid())
	go func() {
		for {
			if data, err := os.ReadFile(state); err != nil || strings.Contains(string(data), ") Z ") {
				break
			}
			runtime.Gosched()
		}
		fmt.Println("ready")
		_, _ = io.ReadAll(os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// withoutFirstThread is the end of a script: the process loses its first thread.
func withoutFirstThread() string { return "; " + firstThreadEnds + "=1 exec " + os.Args[0] }

func TestARawDeviceIsInUseByAProcessWhoseFirstThreadHasEnded(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path := loopDevice(t, dir, 1<<20)
	device := deviceAt(t, path)
	p := holder.Start(t, "exec 7<>"+path+withoutFirstThread(), nil)
	h := held(m.CheckFree(t.Context(), device, true))
	if h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID || !h.Holders[0].Writes {
		t.Errorf("holders of device %s: %v, want process %d, whose first thread has ended, for writing", path, h, p.PID)
	}
	p.End()
	awaitFree(t, m, device, true)
}

// xfs that was shut down describes none of its files, and a user of one is no user of another volume's device.
func TestAMappedFileOfAFilesystemThatWasShutDownKeepsNoRawDevice(t *testing.T) {
	needsRoot(t)
	needsProgram(t, "xfs_io")
	m, dir := New(Options{}), workspace(t)
	target := mkdir(t, dir, "target")
	mountAt(t, filesystem(t, dir, "xfs"), target, "xfs")
	file := filepath.Join(target, "file")
	if err := os.WriteFile(file, make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := holder.Start(t, "export "+deviceToMap+"="+file+"; exec "+os.Args[0], nil)
	device := deviceAt(t, loopDevice(t, mkdir(t, dir, "other"), 1<<20))
	command(t, "xfs_io", "-x", "-c", "shutdown", target)
	if err := m.CheckFree(t.Context(), device, true); err != nil {
		t.Errorf("device %s, which nothing uses: error %v, want none", device.Path, err)
	}
	p.End()
}

func TestAMappingWhoseAddressesChangeIsExamined(t *testing.T) {
	page := os.Getpagesize()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 2*page), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(fd, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	p := processOf(os.Getpid())
	mapped, err := p.mapped(func(int, int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mapped, func(m mapping) bool { return m.path == file })
	if i < 0 {
		t.Fatalf("mappings of this process: %v, want one of %s", mapped, file)
	}
	exists := func(link string) error { _, err := os.Stat(filepath.Join(p.dir, link)); return err }
	examine := func(what string, want bool) {
		t.Helper()
		if got, err := p.examine(mapped[i], exists); got != want || err != nil {
			t.Errorf("%s: mapped %t, error %v, want %t", what, got, err, want)
		}
	}
	examine("as it was mapped", true)
	if err := unix.Mprotect(memory[page:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	examine("split", true)
	_, err = p.examine(mapped[i], func(string) error { return unix.ENOENT })
	if err == nil || ended(err) {
		t.Errorf("a mapping that changes each time: error %v, want one that shows no end of the process", err)
	}
	if err := unix.Munmap(memory); err != nil {
		t.Fatal(err)
	}
	examine("given up", false)
}
