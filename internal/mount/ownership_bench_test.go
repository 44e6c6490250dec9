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
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// What the benchmark of ownership changes, in directories of a thousand files, and how.
var (
	benchFiles   = flag.Int("files", 20_000, "files of BenchmarkOwnership")
	benchHelpers = flag.Int("helpers", ownershipHelpers, "goroutines beside the first one in BenchmarkOwnership")
)

// BenchmarkOwnership compares SetOwnership with chown -R and chmod -R of the same files:
//
//	go test ./internal/mount -run NONE -bench Ownership -benchtime 1x -files 1000000
func BenchmarkOwnership(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("LEFT OUT (needs root): BenchmarkOwnership")
	}
	if *benchFiles < 2*progressEvery {
		b.Fatalf("%d files, want at least %d, which have a middle", *benchFiles, 2*progressEvery)
	}
	for _, fsType := range []string{"tmpfs", "ext4"} {
		b.Run(fsType, func(b *testing.B) {
			v := newBenchVolume(b, fsType)
			v.fill(b, *benchFiles)
			b.Run("change", v.compare)
		})
	}
}

// benchVolume is a filesystem that is mounted anew before each change, so that the kernel knows none of its files.
type benchVolume struct {
	fsType, device, root string
}

func newBenchVolume(b *testing.B, fsType string) *benchVolume {
	b.Helper()
	dir := b.TempDir()
	v := &benchVolume{fsType: fsType, device: "tmpfs", root: filepath.Join(dir, "root")}
	if err := os.Mkdir(v.root, 0o755); err != nil {
		b.Fatal(err)
	}
	if fsType != "tmpfs" {
		v.device = filepath.Join(dir, "disk")
		if err := os.WriteFile(v.device, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Truncate(v.device, 8<<30); err != nil {
			b.Fatal(err)
		}
		benchCommand(b, "mkfs."+fsType, "-q", "-i", "4096", v.device)
	}
	v.mount(b)
	b.Cleanup(func() { benchCommand(b, "umount", v.root) })
	return v
}

func (v *benchVolume) mount(b *testing.B) {
	b.Helper()
	if v.fsType == "tmpfs" {
		benchCommand(b, "mount", "-t", v.fsType, "-o", "nr_inodes=0,size=90%", v.device, v.root)
		return
	}
	benchCommand(b, "mount", "-o", "loop", v.device, v.root)
}

func (v *benchVolume) remount(b *testing.B) {
	b.Helper()
	unix.Sync()
	if v.fsType != "tmpfs" {
		benchCommand(b, "umount", v.root)
		v.mount(b)
	}
}

func (v *benchVolume) fill(b *testing.B, files int) {
	b.Helper()
	for i := range files {
		dir := filepath.Join(v.root, fmt.Sprint(i/100_000), fmt.Sprint(i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprint(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.Close(fd); err != nil {
			b.Fatal(err)
		}
	}
}

// compare has the programs and SetOwnership in turn give the files to another group, with the same permissions before.
func (v *benchVolume) compare(b *testing.B) {
	var programs, ours cost
	var most peak
	for i := range b.N {
		gid := 4 * i
		v.reset(b, gid)
		programs.add(b, v, func() {
			benchCommand(b, "chown", "-R", fmt.Sprintf(":%d", gid+1), v.root)
			benchCommand(b, "chmod", "-R", "g+rwX", v.root)
		})
		v.reset(b, gid)
		ours.add(b, v, func() { v.setOwnership(b, int64(gid+2), nil) })
		v.reset(b, gid)
		most.note(v.peakOwnership(b, int64(gid+3)))
		v.reset(b, gid)
		most.cancel = max(most.cancel, v.cancelOwnership(b, int64(gid+4)))
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(programs.wall.Seconds()/n, "s(chown+chmod)")
	b.ReportMetric(programs.cpu.Seconds()/n, "cpu-s(chown+chmod)")
	b.ReportMetric(ours.wall.Seconds()/n, "s")
	b.ReportMetric(ours.cpu.Seconds()/n, "cpu-s")
	b.ReportMetric(ours.wall.Seconds()/programs.wall.Seconds(), "ratio")
	b.ReportMetric(float64(most.heap)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(most.descriptors), "descriptors")
	b.ReportMetric(float64(most.cancel.Microseconds())/1000, "ms-to-cancel")
}

// peak is the most that changes have beside what was there before.
type peak struct {
	heap, descriptors int64
	// cancel is how long a change went on after its context had ended.
	cancel time.Duration
}

func (p *peak) note(now peak) {
	p.heap, p.descriptors = max(p.heap, now.heap), max(p.descriptors, now.descriptors)
}

func (p *peak) less(before peak) peak {
	return peak{heap: p.heap - before.heap, descriptors: p.descriptors - before.descriptors}
}

// present is what the process has now.
func present(b *testing.B) peak {
	b.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Error(err) // called from several goroutines
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return peak{heap: int64(m.HeapAlloc), descriptors: int64(len(open))}
}

func (v *benchVolume) setOwnership(b *testing.B, gid int64, progress func(int)) {
	b.Helper()
	if err := benchMounter().SetOwnership(b.Context(), v.root, gid, corev1.FSGroupChangeAlways, progress); err != nil {
		b.Fatal(err)
	}
}

// peakOwnership is what a change needs at most, garbage included.
func (v *benchVolume) peakOwnership(b *testing.B, gid int64) peak {
	b.Helper()
	runtime.GC()
	var mu sync.Mutex
	before, most := present(b), peak{}
	v.setOwnership(b, gid, func(int) {
		mu.Lock()
		defer mu.Unlock()
		most.note(present(b))
	})
	return most.less(before)
}

// cancelOwnership ends a change in its middle, and returns how long it went on.
func (v *benchVolume) cancelOwnership(b *testing.B, gid int64) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var once sync.Once
	var ended time.Time
	err := benchMounter().SetOwnership(ctx, v.root, gid, corev1.FSGroupChangeAlways, func(files int) {
		if files >= *benchFiles/2 {
			once.Do(func() {
				ended = time.Now()
				cancel()
			})
		}
	})
	if !errors.Is(err, context.Canceled) {
		b.Fatalf("a change whose context has ended: error %v, want context canceled", err)
	}
	return time.Since(ended)
}

func benchMounter() *Mounter {
	m := New(Options{})
	m.ownershipHelpers = make(chan struct{}, *benchHelpers)
	return m
}

func (v *benchVolume) reset(b *testing.B, gid int) {
	b.Helper()
	benchCommand(b, "chown", "-R", fmt.Sprintf(":%d", gid), v.root)
	benchCommand(b, "chmod", "-R", "a-st,u=rwX,go=rX", v.root)
}

// cost is what changes took.
type cost struct{ wall, cpu time.Duration }

// add measures another change.
func (c *cost) add(b *testing.B, v *benchVolume, change func()) {
	b.Helper()
	v.remount(b)
	began, used := time.Now(), cpuTime(b)
	change()
	c.wall += time.Since(began)
	c.cpu += cpuTime(b) - used
}

// cpuTime is that of this process and of the programs that it has run.
func cpuTime(b *testing.B) (used time.Duration) {
	b.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		used += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return used
}

func benchCommand(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("running %s %v: error %v, want success: %s", name, args, err, out)
	}
}
