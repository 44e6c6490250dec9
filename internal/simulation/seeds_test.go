/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "run this seed alone and print its trace")
	seeds     = flag.Uint64("seeds", 100, "run so many seeds")
	stacks    = flag.String("stacks", "", "write every goroutine's stack to this file where the story ends badly")
	firstSeed = flag.Uint64("first", 1, "the first of them")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // they log, and sleep by the time of the last error, which may be of another world
	os.Exit(m.Run())
}

// scratch is in memory where that can be had: worlds write many small files.
func scratch() string {
	dir := "/dev/shm"
	if _, err := os.Stat(dir); err != nil {
		dir = ""
	}
	dir, err := os.MkdirTemp(dir, "hawser-simulation-")
	if err != nil {
		panic(err)
	}
	return dir
}

// run one seed.
func run(t *testing.T, seed uint64) (reached map[fault]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, scratch())
		w.verbose = *oneSeed != 0 && testing.Verbose()
		defer w.remove()
		nodes, volumes := []string{"a", "b"}, []string{"rwo", "pod", "rwx"}
		w.populate(nodes, volumes)
		w.live(nodes, volumes)
		if *stacks != "" && w.isBroken() {
			writeStacks(t, *stacks)
		}
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("seed %d: %s", seed, f)
		} else if *oneSeed != 0 {
			for _, line := range w.trace {
				fmt.Println(line)
			}
		}
		reached = w.chance.seen()
	})
	return reached
}

func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		run(t, *oneSeed)
		return
	}
	begun, total := time.Now(), map[fault]int{}
	for s := *firstSeed; s < *firstSeed+*seeds && !t.Failed(); s++ {
		for f, n := range run(t, s) {
			total[f] += n
		}
	}
	took := time.Since(begun)
	t.Logf("%d seeds in %s, %.1f a second", *seeds, took.Round(time.Millisecond), float64(*seeds)/took.Seconds())
	for _, f := range faults() {
		t.Logf("%8d  %s", total[f], f)
		if total[f] == 0 && *seeds >= 100 && !t.Failed() {
			t.Errorf("not reached: %s", f)
		}
	}
}

func writeStacks(t *testing.T, path string) {
	buffer := make([]byte, 64<<20)
	if err := os.WriteFile(path, buffer[:runtime.Stack(buffer, true)], 0o600); err != nil {
		t.Error(err)
	}
}
