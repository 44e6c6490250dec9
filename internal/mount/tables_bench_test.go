/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var benchLines = flag.Int("lines", 10_000, "lines of the mount table in BenchmarkManyMounts")

// BenchmarkManyMounts measures, beside many mounts in a mount namespace of its own, what the table costs, and how long
// it takes from an unmount until a program that watches the table has found it:
//
//	go test ./internal/mount -run NONE -bench ManyMounts -benchtime 20x -lines 10000
func BenchmarkManyMounts(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("LEFT OUT (needs root): BenchmarkManyMounts")
	}
	if err := ownNamespace(unix.MS_PRIVATE, func() { benchManyMounts(b) }); err != nil {
		b.Fatal(err)
	}
}

func benchManyMounts(b *testing.B) {
	dir, err := os.MkdirTemp("", "hawser-mount-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(dir) //nolint:errcheck // empty, and only of a benchmark
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		b.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH) //nolint:errcheck // its namespace ends
	for i := range *benchLines {
		benchBind(b, filepath.Join(dir, fmt.Sprintf("pods/%08d-0000/volumes/kubernetes.io~csi/data/mount", i)))
	}
	m := New(Options{MountInfo: fmt.Sprintf("/proc/%d/task/%d/mountinfo", os.Getpid(), unix.Gettid())})
	target := filepath.Join(dir, "target")
	for name, f := range map[string]func(){
		"read":          func() { benchTable(b, m.Table) },
		"known":         func() { benchTable(b, func() (*Table, error) { return m.TableWithin(time.Hour) }) },
		"mount+unmount": func() { benchBind(b, target); benchUnmount(b, target) },
		"mount+known+unmount+known": func() {
			benchBind(b, target)
			benchTable(b, func() (*Table, error) { return m.TableWithin(time.Hour) })
			benchUnmount(b, target)
			benchTable(b, func() (*Table, error) { return m.TableWithin(time.Hour) })
		},
	} {
		f() // the first one of each compares
		began, used := time.Now(), cpuTime(b)
		for range b.N {
			f()
		}
		n := float64(b.N)
		b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/1000/n, "cpu-ms/"+name)
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000/n, "ms/"+name)
	}
	b.ReportMetric(0, "ns/op")
	benchLost(b, m, target)
}

func benchBind(b *testing.B, dir string) {
	b.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount(dir, dir, "", unix.MS_BIND, "")); err != nil {
		b.Fatal(err)
	}
}

func benchUnmount(b *testing.B, dir string) {
	b.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		b.Fatal(err)
	}
}

func benchTable(b *testing.B, read func() (*Table, error)) {
	b.Helper()
	if _, err := read(); err != nil {
		b.Fatal(err)
	}
}

// benchLost measures from the unmount until the table is known to have it no more.
func benchLost(b *testing.B, m *Mounter, target string) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	w, ended := m.NewWatcher(), make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	mounted := func(want bool) {
		for {
			<-w.Changes()
			table, err := m.TableWithin(time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			if _, is := table.At(target); is == want {
				return
			}
		}
	}
	var all []time.Duration
	for range b.N {
		benchBind(b, target)
		mounted(true)
		began := time.Now()
		benchUnmount(b, target)
		mounted(false)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms/lost")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "ms/lost-max")
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
