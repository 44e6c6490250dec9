/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"fmt"
	"io"
	"os"
	"runtime"
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
)

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		runtime.LockOSThread() // main runs in the first thread
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(firstThreadEnds) != "" {
		endFirstThread()
	}
	if path := os.Getenv(deviceOfThread); path != "" {
		hold(openInThread(path))
	}
	if path := os.Getenv(deviceToMap); path != "" {
		hold(mapAndClose(path))
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
func mapAndClose(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if _, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	return unix.Close(fd)
}

func TestARawDeviceIsInUse(t *testing.T) {
	needsRoot(t)
	for name, variable := range map[string]string{
		"by a thread with descriptors of its own":        deviceOfThread,
		"by a mapping of which the descriptor is closed": deviceToMap,
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			path := loopDevice(t, dir, 1<<20)
			device := deviceAt(t, path)
			p := holder.Start(t, "export "+variable+"="+path+"; exec "+os.Args[0], nil)
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
