/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"errors"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// runner runs the programs of mount-utils in the context of one call. They die with this process: a mkfs that outlived
// it would write to a device that the next process uses.
type runner struct {
	utilexec.Interface
	ctx context.Context
}

func newRunner(ctx context.Context) runner { return runner{utilexec.New(), ctx} }

// Command is the only way in which mount-utils creates commands, and CombinedOutput the only one in which it runs them.
func (r runner) Command(name string, args ...string) utilexec.Cmd {
	return &command{Cmd: r.CommandContext(r.ctx, name, args...), run: func() ([]byte, error) {
		return run(r.ctx, name, args...)
	}}
}

type command struct {
	utilexec.Cmd
	run func() ([]byte, error)
}

// CombinedOutput runs the command and returns errors in the form that mount-utils expects.
func (c *command) CombinedOutput() ([]byte, error) {
	out, err := c.run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, utilexec.ExitErrorWrapper{ExitError: exit}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return out, utilexec.ErrExecutableNotFound
	}
	return out, err
}

// run runs a program that dies with this process. The kernel kills the program when the thread that started it
// ends. The thread must therefore stay until then.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd.CombinedOutput()
}

// mounter mounts through run and leaves everything else to mount-utils.
type mounter struct {
	mount.Interface
	ctx context.Context
}

// MountSensitive is the method that SafeFormatAndMount calls.
func (m mounter) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	args := mount.MakeMountArgs(source, target, fsType, append(options, sensitive...))
	out, err := run(m.ctx, "mount", args...)
	if err != nil {
		return &commandError{name: "mount", out: out, err: err}
	}
	return nil
}

// commandError contains a program's output.
type commandError struct {
	name string
	out  []byte
	err  error
}

func (e *commandError) Error() string { return e.name + ": " + e.err.Error() + ": " + string(e.out) }
func (e *commandError) Unwrap() error { return e.err }

func safeMounter(ctx context.Context) *mount.SafeFormatAndMount {
	return mount.NewSafeFormatAndMount(mounter{mount.New(""), ctx}, newRunner(ctx))
}
