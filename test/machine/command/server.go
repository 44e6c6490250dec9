/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package command runs scripts inside a virtual machine: a server that the machine's first process runs, and its
// client. They speak HTTP. A script that hangs in the kernel does not hang the server.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the scripts
)

// Port that the server listens on, inside the machine.
const Port = 7777

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Command is a shell script and how long it may run.
type Command struct {
	Script  string
	Timeout time.Duration
}

// Answer is what came of it.
type Answer struct {
	Output string
	// Exit is the exit code, or 128 and the signal that ended the script.
	Exit int
	// TimedOut: the script did not end in time. It was killed with all its processes, but those that hang in the kernel
	// are still there.
	TimedOut bool
}

// Handler of the server.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		var c Command
		err := json.NewDecoder(r.Body).Decode(&c)
		var answer Answer
		if err == nil {
			answer, err = c.run()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(answer) // fails only if the client has gone
	})
	mux.HandleFunc("GET /boot", func(w http.ResponseWriter, _ *http.Request) {
		id, err := os.ReadFile(bootIDFile)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(id) // fails only if the client has gone
	})
	return mux
}

// run runs the script in a session of its own. A file takes its output, because a process that hangs would never close
// a pipe.
func (c Command) run() (Answer, error) {
	output, err := os.CreateTemp("", "output")
	if err != nil {
		return Answer{}, fmt.Errorf("making the file of the output: %w", err)
	}
	defer func() { _ = errors.Join(output.Close(), os.Remove(output.Name())) }() // it is in memory
	cmd := exec.Command("/bin/sh", "-c", c.Script)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Answer{}, fmt.Errorf("starting the script: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	var answer Answer
	select {
	case err = <-ended:
		answer.Exit = exitCode(cmd.ProcessState)
	case <-timer.C:
		answer.TimedOut = true
		err = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Answer{}, fmt.Errorf("ending the script: %w", err)
	}
	data, err := os.ReadFile(output.Name())
	answer.Output = strings.ToValidUTF8(string(data), "?")
	return answer, err
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
