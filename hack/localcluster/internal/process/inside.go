/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrMachineOff means that a machine does not run.
var ErrMachineOff = errors.New("the machine does not run")

// launch starts the command, inside a machine if one is named.
func (d Directory) launch(cmd *exec.Cmd, machine string) error {
	if machine == "" {
		return cmd.Start()
	}
	record, err := d.Load(machine)
	if err != nil {
		return err
	}
	return record.StartInside(cmd)
}

// StartInside starts the command with the mounts, the network and the process IDs of a machine.
func (r Record) StartInside(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		// Never unlocked: the thread has left the other threads' namespaces and ends with this goroutine.
		runtime.LockOSThread()
		err := r.enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// enter moves the calling thread, and the processes that it then starts, into the machine.
func (r Record) enter() error {
	descriptor, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return fmt.Errorf("entering %s: %w", r.Name, errors.Join(ErrMachineOff, err))
	}
	defer func() { _ = unix.Close(descriptor) }() // nothing was written to it
	// The descriptor always refers to the same process, so the check is about the process that is entered.
	if !r.Running() {
		return fmt.Errorf("entering %s: %w", r.Name, ErrMachineOff)
	}
	// The kernel refuses another mount namespace to a thread that shares its working directory.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the shared working directory: %w", err)
	}
	if err := unix.Setns(descriptor, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("entering %s: %w", r.Name, err)
	}
	return nil
}
