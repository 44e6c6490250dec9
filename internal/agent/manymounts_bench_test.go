/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var benchLines = flag.Int("lines", 10_000, "lines of the mount table in BenchmarkPublishesBesideManyMounts")

// mountingDriver mounts and binds filesystems in memory.
type mountingDriver struct{ *fakeDriver }

func (mountingDriver) Stage(_ context.Context, req driver.StageRequest) error {
	return errors.Join(os.MkdirAll(req.StagingPath, 0o755), unix.Mount("tmpfs", req.StagingPath, "tmpfs", 0, ""))
}

func (mountingDriver) Publish(_ context.Context, req driver.PublishRequest) error {
	return errors.Join(os.MkdirAll(req.TargetPath, 0o755),
		unix.Mount(req.StagingPath, req.TargetPath, "", unix.MS_BIND, ""))
}

// wholeTables reads the whole table each time.
type wholeTables struct{ operation.Mounts }

func (m wholeTables) TableWithin(time.Duration) (*mount.Table, error) { return m.Table() }

func (m wholeTables) At(path string) (*mount.Table, mount.Entry, bool, error) {
	return lookUp(m.Table, path)
}

// BenchmarkPublishesBesideManyMounts stages and publishes a hundred volumes one after the other, beside many mounts:
//
//	go test ./internal/agent -run NONE -bench PublishesBesideManyMounts -benchtime 1x -lines 10000
//
// The mounts are real, the driver is quick, and the API server is that of the tests, in memory. A row reads the whole
// mount table each time that it is needed.
func BenchmarkPublishesBesideManyMounts(b *testing.B) {
	const volumes = 100
	if os.Getenv(inOwnNamespace) == "" {
		runInOwnNamespace(b)
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		b.Fatal(err)
	}
	benchMany(b)
	for name, whole := range map[string]bool{"known": false, "whole": true} {
		b.Run(name, func(b *testing.B) {
			mounter := mount.New(mount.Options{})
			var mounts operation.Mounts = mounter
			if whole {
				mounts = wholeTables{mounter}
			}
			for range b.N {
				for i := range volumes {
					b.StopTimer()
					w := mountingBench(b, fmt.Sprint("volume-", i), mounts)
					b.StartTimer()
					publishOnce(b, w)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N)/volumes, "ms/publish")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// inOwnNamespace is set in a process that has a mount namespace of its own.
const inOwnNamespace = "HAWSER_BENCH_OWN_NAMESPACE"

// runInOwnNamespace runs the same benchmarks in such a process.
func runInOwnNamespace(b *testing.B) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skipf("LEFT OUT (needs root): %s", b.Name())
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), inOwnNamespace+"=1")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := again.Run(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

// benchMany makes as many mounts as the flag asks for.
func benchMany(b *testing.B) {
	b.Helper()
	dir := b.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			b.Error(err)
		}
	})
	for i := range *benchLines {
		path := filepath.Join(dir, fmt.Sprintf("pods/%08d-0000/volumes/kubernetes.io~csi/data/mount", i))
		if err := errors.Join(os.MkdirAll(path, 0o755), unix.Mount(path, path, "", unix.MS_BIND, "")); err != nil {
			b.Fatal(err)
		}
	}
}

func mountingBench(b *testing.B, handle string, mounts operation.Mounts) *bench {
	b.Helper()
	w := newBench(b, testVolume{handle: handle, change: func(e *volumesv1alpha1.NodeAttachment) {
		e.FSType, e.MountOptions = "", nil
	}})
	w.want("intent")
	w.agent.Mounts, w.agent.steps.Mounts = mounts, mounts
	w.agent.steps.Registry = newFakeRegistry(mountingDriver{w.driver})
	b.Cleanup(func() {
		table, err := mounts.Table()
		w.must(err)
		for _, dir := range []string{w.agent.paths.Root, w.agent.paths.Kubelet} {
			for _, e := range table.Below(dir) {
				w.must(unix.Unmount(e.Path, unix.MNT_DETACH))
			}
		}
	})
	return w
}

// publishOnce takes the steps that a reconcile takes, and gathers before each of them as it does.
func publishOnce(b *testing.B, w *bench) {
	b.Helper()
	for range 10 {
		f := w.facts()
		w.must(w.agent.find(b.Context(), &f))
		steps := plan.Of(f)
		if len(steps) == 0 {
			return
		}
		if err := w.agent.steps.Run(b.Context(), w.volume, f, steps[0]); err != nil {
			b.Fatalf("%s: %v", steps[0].Kind, err)
		}
	}
	b.Fatal("the plan of the volume has no end, want it published")
}
