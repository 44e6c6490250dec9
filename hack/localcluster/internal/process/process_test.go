/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func start(t *testing.T, d Directory, script string) (Record, <-chan error) {
	t.Helper()
	ended, err := d.Start(Spec{
		Name: "it", Program: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(string(d), "it.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	record, err := d.Load("it")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = record.Stop(time.Second) })
	return record, ended
}

func TestStopEndsTheProcess(t *testing.T) {
	record, ended := start(t, Directory(t.TempDir()), "exec sleep 600")
	if !record.Running() {
		t.Fatal("the process does not run")
	}
	if err := record.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("the process ended by itself")
	}
	if record.Running() {
		t.Fatal("the process still runs")
	}
	if err := record.Stop(time.Second); err != nil {
		t.Fatalf("stopping a second time: %v", err)
	}
}

func TestStopKillsAProcessThatIgnoresTheRequest(t *testing.T) {
	dir := Directory(t.TempDir())
	ready := filepath.Join(string(dir), "ready")
	// It waits without a child process, which would outlive it.
	record, ended := start(t, dir, `trap "" TERM; mkfifo `+ready+` `+ready+`.never
		echo > `+ready+`; exec 3<>`+ready+`.never; while :; do read line <&3; done`)
	awaitFile(t, ready)
	if _, err := os.ReadFile(ready); err != nil { // the fifo opens once the trap is set
		t.Fatal(err)
	}
	if err := record.Stop(200 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the process ended with %v", err)
	}
}

func TestStopDoesNotStopAnotherProcessWithTheSameNumber(t *testing.T) {
	record, ended := start(t, Directory(t.TempDir()), "exec sleep 600")
	stranger := record
	stranger.Birth = "another boot/1"
	if stranger.Running() {
		t.Fatal("a stranger was taken for the recorded process")
	}
	if err := stranger.Stop(time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the stranger was stopped: %v", err)
	default:
	}
	if !record.Running() {
		t.Fatal("the stranger was stopped")
	}
}

func TestStartDoesNotChangeARunningProcess(t *testing.T) {
	dir := Directory(t.TempDir())
	first, _ := start(t, dir, "exec sleep 600")
	second, _ := start(t, dir, "exec sleep 600")
	if first.PID != second.PID {
		t.Fatalf("started twice: %d and %d", first.PID, second.PID)
	}
}

// awaitFile waits for a file that the shell creates.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) {
			_, err := os.Stat(path)
			return err == nil, nil
		})
	if err != nil {
		t.Fatalf("%s never appeared: %v", path, err)
	}
}
