/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startMachine starts the first process of new namespaces.
func startMachine(t *testing.T, d Directory) Record {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT (needs root, for namespaces)")
	}
	if _,
		err := d.Start(Spec{Name: "machine", Program: "/bin/sleep", Args: []string{"600"}, Log: logOf(d),
		Machine: true}); err != nil {
		t.Fatal(err)
	}
	record, err := d.Load("machine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = record.Stop(time.Second) })
	return record
}

func logOf(d Directory) string { return filepath.Join(string(d), "it.log") }

func TestOnlyProcessesInsideAMachineSeeItsProcessIDsAndMounts(t *testing.T) {
	machine := startMachine(t, Directory(t.TempDir()))
	read := func(inside bool) string {
		var output bytes.Buffer
		cmd := exec.Command("readlink", "/proc/thread-self/ns/mnt", "/proc/thread-self/ns/pid")
		cmd.Stdout = &output
		err := cmd.Start
		if inside {
			err = func() error { return machine.StartInside(cmd) }
		}
		if err := errors.Join(err(), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		return output.String()
	}
	outside, inside := read(false), read(true)
	for i, line := range strings.Fields(inside) {
		if line == strings.Fields(outside)[i] {
			t.Errorf("inside and outside: %s", line)
		}
	}
	if again := read(false); again != outside {
		t.Errorf("this program came to be elsewhere: %s, %s", outside, again)
	}
}

func TestProcessesInsideAMachineEndWithIt(t *testing.T) {
	d := Directory(t.TempDir())
	machine := startMachine(t, d)
	ended,
		err := d.Start(Spec{Name: "guest", Program: "/bin/sleep", Args: []string{"600"}, Log: logOf(d), Inside: "machine"})
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.Stop(time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the guest ended by itself")
	}
	_, err = d.Start(Spec{Name: "late", Program: "/bin/sleep", Args: []string{"600"}, Log: logOf(d), Inside: "machine"})
	if !errors.Is(err, ErrMachineOff) {
		t.Errorf("starting in a machine that is off: %v", err)
	}
}

// TestMain is the program that notifies, if a test starts it as that.
func TestMain(m *testing.M) {
	switch os.Getenv("LOCALCLUSTER_TEST_NOTIFY") {
	case "ready":
		if err := NotifyReady(); err != nil {
			panic(err)
		}
		select {}
	case "end":
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func TestStartAndAwaitWaitsForTheNotification(t *testing.T) {
	for _, what := range []string{"ready", "end"} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("LOCALCLUSTER_TEST_NOTIFY", what)
			// Not t.TempDir: its name is too long for a socket.
			dir, err := os.MkdirTemp("", "lc")
			if err != nil {
				t.Fatal(err)
			}
			d := Directory(dir)
			t.Cleanup(func() {
				if record, err := d.Load("it"); err == nil {
					_ = record.Stop(time.Second)
				}
				_ = os.RemoveAll(dir)
			})
			err = d.StartAndAwait(t.Context(), Spec{Name: "it", Program: os.Args[0], Log: logOf(d), Notifies: true})
			if (err == nil) != (what == "ready") {
				t.Errorf("the program that is to %s: %v", what, err)
			}
		})
	}
}
