/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"time"

	"k8s.io/utils/clock"
)

// wallClock is the clock of one process. It is off from virtual time by as much as its machine's clock was when the
// process began.
type wallClock struct {
	clock.RealClock
	off time.Duration
}

func (c wallClock) Now() time.Time { return time.Now().Add(c.off) }

func (c wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// clockOf is the clock of a process that begins now. The machine's clock may have jumped since the process before it
// began.
func (w *World) clockOf(machine string) wallClock {
	jumps := w.chance.happens(machine, clockJumps)
	off := w.chance.between(machine, -time.Hour, time.Hour)
	w.mu.Lock()
	defer w.mu.Unlock()
	if jumps {
		w.clocks[machine] = off
		w.logLocked("the clock of %s is off by %s", machine, off)
	}
	return wallClock{off: w.clocks[machine]}
}
