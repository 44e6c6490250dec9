/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package command

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newClient(t *testing.T) Client {
	t.Helper()
	server := httptest.NewServer(Handler())
	t.Cleanup(server.Close)
	return Client{URL: server.URL}
}

func TestAScriptIsAnsweredWithItsOutputAndExitCode(t *testing.T) {
	for script, want := range map[string]Answer{
		"echo out; echo err >&2":       {Output: "out\nerr\n"},
		"echo before; exit 3":          {Output: "before\n", Exit: 3},
		"kill -TERM $$":                {Exit: 128 + int(unix.SIGTERM)},
		"echo wrong; sleep 60 & false": {Output: "wrong\n", Exit: 1},
	} {
		got, err := newClient(t).Run(t.Context(), Command{Script: script, Timeout: time.Minute})
		if err != nil || got != want {
			t.Errorf("script %q: answer %+v, error %v, want %+v", script, got, err, want)
		}
	}
}

func TestAScriptThatDoesNotEndIsKilledWithAllItsProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	answer, err := newClient(t).Run(t.Context(), Command{
		Script: "echo began; sleep 600 & echo $! >" + file + "; wait", Timeout: 500 * time.Millisecond})
	if err != nil || !answer.TimedOut || answer.Output != "began\n" {
		t.Errorf("answer %+v, error %v, want one that is too late, with the output until then", answer, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) || zombie(pid) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d of the script still runs, want it killed", pid)
		}
	}
}

// zombie reports whether the process has ended, and its parent has not asked for that yet.
func zombie(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestTheBootIDIsThatOfTheKernel(t *testing.T) {
	want, err := os.ReadFile(bootIDFile)
	if err != nil {
		t.Fatal(err)
	}
	got, err := newClient(t).BootID(t.Context())
	if err != nil || got != strings.TrimSpace(string(want)) {
		t.Errorf("boot ID %q, error %v, want %s", got, err, want)
	}
}
