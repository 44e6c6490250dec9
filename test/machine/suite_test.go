/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hawser-io/hawser/test/machine/boot"
)

// dirVariable enables the suite, and names the directory of its machines and clusters.
const dirVariable = "HAWSER_TEST_MACHINES"

// lab is what all tests share.
var lab struct {
	dir   string
	files boot.Files
	// booted is a machine that has just booted.
	booted Snapshot
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		fmt.Println("not asked for: make test-machines runs these tests")
		return 0
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		fmt.Println("FAIL: test-machines needs QEMU (Debian package qemu-system-x86)")
		return 1
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if err := prepare(ctx, dir); err != nil {
		fmt.Println("FAIL: preparing the machines:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(filepath.Join(lab.dir, "machines")) }() // the next run does it too
	return m.Run()
}

func prepare(ctx context.Context, dir string) (err error) {
	lab.dir = dir
	if err := os.RemoveAll(filepath.Join(dir, "machines")); err != nil {
		return err
	}
	if lab.files, err = boot.Prepare(ctx, os.Stdout); err != nil {
		return err
	}
	begin := time.Now()
	o := options("booted", "")
	m, err := Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("a machine booted in %.1f s\n", time.Since(begin).Seconds())
	begin = time.Now()
	lab.booted, err = m.Snapshot(ctx, filepath.Join(dir, "machines", "snapshot"))
	fmt.Printf("its snapshot took %.1f s\n", time.Since(begin).Seconds())
	if err != nil {
		return err
	}
	return m.CutPower()
}

// options of a machine. All have the same devices, so that each can begin with the snapshot.
func options(name, share string) Options {
	dir := filepath.Join(lab.dir, "machines", name)
	if share == "" {
		share = lab.dir
	}
	return Options{Name: name, Dir: dir, Files: lab.files, UUID: "6d1f9e8a-52b7-4c5e-9f3a-0123456789ab", Share: share}
}

// start starts a machine for the test.
func start(t *testing.T, o Options) *Machine {
	t.Helper()
	begin := time.Now()
	m, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("machine %s takes commands after %.1f s", o.Name, time.Since(begin).Seconds())
	t.Cleanup(func() {
		if err := m.CutPower(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(m.failure())
		}
	})
	return m
}

// restored is a machine that begins with the snapshot.
func restored(t *testing.T, share string) *Machine {
	t.Helper()
	o := options(strings.ToLower(t.Name())[:12], share)
	o.From = &lab.booted
	return start(t, o)
}

func (m *Machine) must(t *testing.T, script string, args ...any) string {
	t.Helper()
	out, err := m.Run(t.Context(), script, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
