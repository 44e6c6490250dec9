/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package holder starts processes that keep mounts and files in use, as containers do.
package holder

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the tests
)

// Process lives until End, or the end of its test.
type Process struct {
	PID int
	End func()
}

// Container starts a process with a private copy of the mount at path, which no unmount of the host reaches. It also
// returns the path of the copy, as the test can open it.
func Container(t *testing.T, path string) (p Process, inside string) {
	t.Helper()
	p = Start(t, "mount --make-rprivate /; mount --bind "+path+" /mnt; "+forgetOthers, ownMounts)
	return p, fmt.Sprintf("/proc/%d/root/mnt", p.PID)
}

// Isolated starts a shell with its own mount table, without mounts of other tests.
func Isolated(t *testing.T, script string) Process {
	t.Helper()
	return Start(t, "mount --make-rprivate /; "+forgetOthers+"; "+script, ownMounts)
}

var ownMounts = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}

// forgetOthers unmounts mounts of other tests: a copy of them would keep their devices busy. It ignores mounts
// that were removed meanwhile.
var forgetOthers = `awk '$5 ~ "^` + os.TempDir() +
	`/" {print $5}' /proc/self/mountinfo | sort -r | xargs -r -n 1 umount -l || true`

// Receiver starts a shell with its own mount table, in which later changes of shared mounts appear, as in a container
// with mount propagation HostToContainer.
func Receiver(t *testing.T, script string) Process {
	t.Helper()
	return start(t, exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-ec", script+wait))
}

// Tenant starts a Receiver's shell in a user namespace of its own, without the mount of the node at hidden. A process
// of a pod that has no right to mount can make one.
func Tenant(t *testing.T, hidden, script string) Process {
	t.Helper()
	return Receiver(t, "umount "+hidden+"; exec unshare --user --map-root-user --mount --propagation slave sh -ec '"+
		script+wait+"'")
}

// Start starts a shell, and returns once it has run the script.
func Start(t *testing.T, script string, attr *syscall.SysProcAttr) Process {
	t.Helper()
	shell := exec.Command("sh", "-ec", script+wait)
	shell.SysProcAttr = attr
	return start(t, shell)
}

// wait is the end of every script.
const wait = "; echo ready; read end"

func start(t *testing.T, shell *exec.Cmd) Process {
	t.Helper()
	shell.Stderr = t.Output()
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	p := Process{PID: shell.Process.Pid, End: func() {
		if ended {
			return
		}
		ended = true
		_ = in.Close()   // ends the shell's read
		_ = shell.Wait() // and the shell reports that as an error
	}}
	t.Cleanup(p.End)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("first line of process %d: %q, error %v; want ready", p.PID, line, err)
	}
	return p
}
