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
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
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
	seeds     = flag.Uint64("seeds", 30, "run so many seeds")
	stacks    = flag.String("stacks", "", "write every goroutine's stack to this file where the story ends badly")
	harsh     = flag.Bool("harsh", false, "drivers forget what they have begun, and device numbers come again")
	mode      = flag.String("mode", "", "Coexist or Replace; by default every second seed runs in Replace")
	inline    = flag.String("inline", "", "true or false: pods have inline volumes; by default those of every third seed")
	firstSeed = flag.Uint64("first", 1, "the first of them")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // they log, and sleep by the time of the last error, which may be of another world
	debug.SetGCPercent(400)
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

// remove what the world has on the disk. Its mounts are simulated, so that nothing is deleted through one.
func (w *World) remove() { _ = os.RemoveAll(w.dir) }

// story is what a seed has come about in one mode.
type story struct {
	seed uint64
	// replace: the manager attaches for pods too.
	replace bool
	// inline: pods have inline volumes.
	inline bool
}

func (s story) String() string {
	in := "Coexist"
	if s.replace {
		in = "Replace"
	}
	return fmt.Sprintf("seed %d -mode=%s -inline=%t", s.seed, in, s.inline)
}

// storyOf the seed, as the flags have it, or by default the one or the other.
func storyOf(seed uint64) story {
	return story{seed: seed, replace: *mode == "Replace" || *mode != "Coexist" && seed%2 == 0,
		inline: *inline == "true" || *inline != "false" && seed%3 == 0}
}

// mended are seeds that failed once, and why. Every run begins with them.
var mended = map[story]string{
	{27, true, false}:   "an agent did not release a volume for a single user while a pod waited for that release",
	{58, true, false}:   "an agent did not release a volume whose device the kubelet had mounted again",
	{67, true, false}:   "a pod found a volume for a single user still listed as attached, beside an intent of the agent",
	{seed: 360}:         "a volume stayed in use for an intent that was gone before it was staged for it",
	{seed: 1307}:        "a volume stayed in use for an intent that was gone before anything was published for it",
	{5938, true, false}: "nobody ended a pod that waited for a stage which its restarted kubelet did not know of",
	{seed: 1411}: "what a manager attached after it was asleep stayed attached, " +
		"because the node's agent was heard of only then",
	{14928, true, false}: "a volume for a single user kept an intent that was deleted before its entry was written, " +
		"while a pod waited for that intent to go",
	{5, false, true}: "a kubelet had no record of an inline volume, and the agent counted it for other volumes",
	{8, true, true}:  "an agent waited for the device of another volume, of which an inline volume had no record",
	{seed: 2015}:     "an agent did not go on when its session was confirmed before its first report was acknowledged",
}

// run one story.
func run(t *testing.T, s story) (reached map[fault]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s.seed, scratch())
		w.verbose = *oneSeed != 0 && testing.Verbose()
		w.harsh, w.replace, w.inline = *harsh, s.replace, s.inline
		w.sickness = mended[s] == ""
		w.twins = !s.replace && !s.inline && s.seed%5 > 2 // none of those that are mended
		w.machines = !s.replace && !s.inline && (s.seed%7 == 1 || s.seed%7 == 2)
		w.fences = mended[s] == "" && (s.seed%4 == 1 || s.seed%4 == 2)
		w.managesTaint = w.fences && s.seed%8 < 4
		defer w.remove()
		nodes, volumes := []string{"a", "b"}, []string{"rwo", "pod", "rwx"}
		w.populate(nodes, volumes)
		w.live(nodes, volumes)
		if *stacks != "" && w.isBroken() {
			writeStacks(t, *stacks)
		}
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("simulation of %s failed, want no failure: %s", s, f)
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
		run(t, storyOf(*oneSeed))
		return
	}
	begun, next, total := time.Now(), atomic.Uint64{}, tally{}
	next.Store(*firstSeed)
	t.Run("mended", func(t *testing.T) { // ends before the other seeds begin
		for s, why := range mended {
			t.Run(why, func(t *testing.T) {
				t.Parallel()
				run(t, s)
			})
		}
	})
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for s := next.Add(1) - 1; s < *firstSeed+*seeds && !t.Failed(); s = next.Add(1) - 1 {
					total.add(run(t, storyOf(s)))
				}
			})
		}
	})
	took := time.Since(begun)
	fmt.Printf("simulation: %d seeds in %s, %.1f a second\n", *seeds, took.Round(time.Millisecond),
		float64(*seeds)/took.Seconds())
	for _, what := range append(total.occasions(), faults()...) {
		fmt.Printf("simulation: %8d times %s\n", total.reached[what], what)
		impossible := *mode == "Coexist" && slices.Contains(ofKubelets(), what) ||
			*inline == "false" && slices.Contains(ofInline(), what) ||
			(*mode == "Replace" || *inline == "true") && slices.Contains(ofMachines(), what)
		if total.reached[what] == 0 && *seeds >= 1000 && !t.Failed() && !impossible {
			t.Errorf("no seed of %d reached %q, want at least one", *seeds, what)
		}
	}
}

// tally is what several worlds have reached.
type tally struct {
	mu      sync.Mutex
	reached map[fault]int
}

func (t *tally) add(reached map[fault]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached == nil {
		t.reached = map[fault]int{}
	}
	for f, n := range reached {
		t.reached[f] += n
	}
}

// occasions are what happens when all goes well.
func (t *tally) occasions() []fault {
	return []fault{attached, staged, published, detached, taken, contradicted, fenceContradicted, fencedAway, liftedSince,
		putOut, putIn, othersDeclared, shut, checked, running, reconstructed, boundInline, keptInline, foundSick}
}

func writeStacks(t *testing.T, path string) {
	buffer := make([]byte, 64<<20)
	if err := os.WriteFile(path, buffer[:runtime.Stack(buffer, true)], 0o600); err != nil {
		t.Error(err)
	}
}
