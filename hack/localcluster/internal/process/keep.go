/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"time"
)

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	// settled is how long a program must run to count as working.
	settled   = 10 * time.Second
	keepGrace = 3 * time.Second
)

// KeepRunning runs the program and restarts it whenever it ends, until the context ends. A program that ends soon after
// its start is restarted after increasing pauses.
func KeepRunning(ctx context.Context, program string, args []string, log *slog.Logger) {
	// If this process is killed, the kernel ends the child with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	pause := shortestPause
	for {
		cmd := Command(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = keepGrace

		start := time.Now()
		err := cmd.Run()
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > settled {
			pause = shortestPause
		}
		log.Info("the program ended, starting it again", "program", program, "error", err, "pause", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}
