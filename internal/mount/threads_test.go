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

// firstThreadEnds is in the environment of a test program whose first thread is to end before the others.
const firstThreadEnds = "HAWSER_TEST_FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		runtime.LockOSThread() // main runs in the first thread
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(firstThreadEnds) != "" {
		endFirstThread()
	}
	os.Exit(m.Run())
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

func TestAVolumeStaysInADirectoryForAProcessWhoseFirstThreadHasEnded(t *testing.T) {
	s := newShown(t)
	p := holder.Receiver(t, s.groupOfPod()+"exec 7<"+s.target+"/file; umount -l "+s.target+withoutFirstThread())
	s.heldBy(p, "of a mount that was detached")
	p.End()
	s.cleared()
}
