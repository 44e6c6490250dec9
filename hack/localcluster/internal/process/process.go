/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package process runs programs that outlive the process that started them. Each has a record on disk, to find,
// identify and stop it later.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec describes a program to run.
type Spec struct {
	// Name is unique in its directory.
	Name string `json:"name"`
	// Program is the path of the executable.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Log is the file that standard output and standard error are appended to.
	Log string `json:"log"`
	// Health is the URL, if any, at which the program answers once it is ready.
	Health string `json:"health,omitempty"`
	// Notifies is true if the program signals that it is ready through NOTIFY_SOCKET, as for systemd.
	Notifies bool `json:"notifies,omitempty"`
	// Machine makes the program the first process of new mount and process ID namespaces. All processes inside end with
	// it.
	Machine bool `json:"machine,omitempty"`
	// Inside names the machine in which this program runs, if any.
	Inside string `json:"inside,omitempty"`
}

// Record is the record of a started program on disk.
type Record struct {
	Spec
	PID int `json:"pid"`
	// Birth distinguishes this process from a later one with the same number.
	Birth string `json:"birth"`
}

// Directory contains the records of a set of processes.
type Directory string

// Start runs the program detached, in its own session, and records it. It does not change a running program of
// that name. If the process ends while the caller lives, the channel receives the result. The environment is
// added to that of Command.
func (d Directory) Start(spec Spec, environment ...string) (<-chan error, error) {
	if record, err := d.Load(spec.Name); err == nil && record.Running() {
		return nil, nil
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor

	// Not bound to a context of the caller, because it outlives the caller.
	cmd := Command(context.Background(), spec.Program, spec.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Env, environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if spec.Machine {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID
	}
	if err := d.launch(cmd, spec.Inside); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	birth, err := birthOf(cmd.Process.Pid)
	if err == nil {
		err = d.save(Record{Spec: spec, PID: cmd.Process.Pid, Birth: birth})
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// Load reads the record of a name.
func (d Directory) Load(name string) (Record, error) {
	var record Record
	data, err := os.ReadFile(d.path(name))
	if err != nil {
		return record, fmt.Errorf("reading the record of %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, fmt.Errorf("parsing the record of %s: %w", name, err)
	}
	return record, nil
}

// List reads all records.
func (d Directory) List() ([]Record, error) {
	paths, err := filepath.Glob(d.path("*"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", d, err)
	}
	records := make([]Record, 0, len(paths))
	for _, path := range paths {
		record, err := d.Load(strings.TrimSuffix(filepath.Base(path), ".json"))
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// Remove deletes a record, so that the program is not started again.
func (d Directory) Remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the record of %s: %w", name, err)
	}
	return nil
}

func (d Directory) path(name string) string { return filepath.Join(string(d), name+".json") }

// save writes the record under a temporary name first: with an incomplete record the process would be lost.
func (d Directory) save(record Record) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", record.Name, err)
	}
	temporary := d.path(record.Name) + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the record of %s: %w", record.Name, err)
	}
	if err := os.Rename(temporary, d.path(record.Name)); err != nil {
		return fmt.Errorf("writing the record of %s: %w", record.Name, err)
	}
	return nil
}

// Running reports whether the recorded process is alive. A later process with the same number does not count.
func (r Record) Running() bool {
	birth, err := birthOf(r.PID)
	return err == nil && birth == r.Birth
}

// Stop asks the process to end, waits, and kills it after the grace period. A process that is gone, or whose number
// belongs to another process, counts as stopped.
func (r Record) Stop(grace time.Duration) error {
	descriptor, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d of %s: %w", r.PID, r.Name, err)
	}
	defer func() { _ = unix.Close(descriptor) }() // nothing was written to it

	// The descriptor always refers to the same process, so the check is about the process that gets the signal.
	if !r.Running() {
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(descriptor, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signalling %s: %w", r.Name, err)
		}
		gone, err := waitEnd(descriptor, grace)
		if err != nil {
			return fmt.Errorf("waiting for the end of %s: %w", r.Name, err)
		}
		if gone {
			return nil
		}
	}
	return fmt.Errorf("stopping %s: process %d outlives SIGKILL", r.Name, r.PID)
}

// waitEnd waits until the process of the descriptor has ended; the kernel signals that.
func waitEnd(descriptor int, limit time.Duration) (bool, error) {
	deadline := time.Now().Add(limit)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0, err
	}
}

// birthOf identifies a living process by the boot, and by the tick of that boot at which it started. A zombie counts as
// gone.
func birthOf(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("reading process %d: %w", pid, err)
	}
	// The program's name is in parentheses and may contain anything. The fields follow the last parenthesis.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
