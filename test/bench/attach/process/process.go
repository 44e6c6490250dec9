/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package process runs the contenders' programs and measures their cost.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a program may take to stop.
const grace = 20 * time.Second

// Process is a running program.
type Process struct {
	// PID of the program.
	PID int

	cancel context.CancelFunc
	ended  chan error
	killed atomic.Bool
}

// Start runs a program with its output in log. The program ends with ctx at the latest. If it ends without Stop, Start
// calls failed.
func Start(ctx context.Context, log, program string, args []string, failed func(error)) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", program, err)
	}
	defer func() { _ = file.Close() }() // the program has its own descriptor
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	p := &Process{PID: cmd.Process.Pid, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		err := cmd.Wait()
		if ctx.Err() == nil && !p.killed.Load() {
			failed(fmt.Errorf("%s ended by itself (see %s): %w", filepath.Base(program), log,
				errors.Join(err, errors.New("unexpected end"))))
		}
		p.ended <- err
	}()
	return p, nil
}

// Stop stops the program and waits for its end.
func (p *Process) Stop() {
	p.cancel()
	<-p.ended //nolint:errcheck // its exit status has no meaning any more
}

// Kill ends the program at once, as a crash does.
func (p *Process) Kill() error {
	p.killed.Store(true)
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	p.Stop()
	return nil
}

// Memory of a process, in bytes.
type Memory struct {
	// Peak is its maximum resident memory, Resident the present value.
	Peak     int64 `json:"peakBytes"`
	Resident int64 `json:"residentBytes"`
	// Anonymous is the part of Resident that is not of files: the pages of a program are one copy for all its processes.
	Anonymous int64 `json:"anonymousBytes"`
}

// MemoryOf a process.
func MemoryOf(pid int) (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	var m Memory
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kibibytes, _ := strconv.ParseInt(fields[1], 10, 64) // lines of other fields are not used
		switch fields[0] {
		case "VmHWM:":
			m.Peak = kibibytes << 10
		case "VmRSS:":
			m.Resident = kibibytes << 10
		case "RssAnon:":
			m.Anonymous = kibibytes << 10
		}
	}
	return m, nil
}

// tick is the unit of the times in /proc.
const tick = 10 * time.Millisecond

// CPU is the CPU time that a process has used.
func CPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the times of process %d: %w", pid, err)
	}
	// The program's name is in parentheses and may contain anything. The fields follow the last parenthesis.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var sum time.Duration
	for _, field := range fields[11:13] { // utime, stime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parsing the times of process %d: %w", pid, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// Child finds the child of this process that runs the named program.
func Child(name string) (int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		pid, rest, _ := strings.Cut(string(data), " (")
		comm, rest, _ := strings.Cut(rest, ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && strings.HasPrefix(name, comm) {
			return strconv.Atoi(pid)
		}
	}
	return 0, fmt.Errorf("no process %s was started here", name)
}
