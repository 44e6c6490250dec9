/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Files through which a test follows and stops the agent.
const (
	stepsFile   = "/run/agent-steps"
	stopFile    = "/run/agent-stop"
	stoppedFile = "/run/agent-stopped"
)

// steps is held while one is written down.
var steps sync.Mutex

// stopAt writes the step down, and stops the agent where that is asked for. Each name gets the number of times that it
// came up since the test began to follow.
func stopAt(name string) {
	steps.Lock()
	defer steps.Unlock()
	earlier, err := os.ReadFile(stepsFile)
	if err != nil {
		return // no test follows
	}
	number := 1
	for line := range strings.Lines(string(earlier)) {
		if line[:strings.LastIndex(line, " ")] == name {
			number++
		}
	}
	step := fmt.Sprintf("%s %d", name, number)
	file, err := os.OpenFile(stepsFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintln(file, step)
	_ = file.Close()
	if at, err := os.ReadFile(stopFile); err == nil && string(at) == step {
		_ = os.WriteFile(stoppedFile, nil, 0o600)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}
