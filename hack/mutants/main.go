/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// mutants makes careless changes to the code that keeps data safe, one at a time. It lists those that no test detects.
//
// All changes are compiled in at once, so that the tests are built once. A number in the environment enables
// one of them. Each test, and each few seeds of the simulation, first runs without a change, to find the
// changes that it reaches. A change is then tested with those tests only, the quickest first, until one fails.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const simulation = "test/simulation"

// scope are the mutated files, and tested the packages whose tests run. A directory means all of its files.
var (
	scope = []string{
		"internal/handshake",
		"internal/controller/attachment/decision/decide.go", "internal/controller/attachment/decision/attach.go",
		"internal/controller/attachment/decision/detach.go", "internal/controller/attachment/decision/declared.go",
		"internal/controller/attachment/decision/evidence.go", "internal/controller/attachment/decision/lock.go",
		"internal/controller/attachment/decision/user.go",
		"internal/controller/outage",
		"internal/controller/attachment/confirm.go", "internal/controller/attachment/lock.go",
		"internal/controller/attachment/collect.go", "internal/controller/attachment/attach.go",
		"internal/controller/attachment/attachments.go", "internal/controller/attachment/detach.go",
		"internal/controller/attachment/delete.go", "internal/controller/attachment/release.go",
		"internal/controller/attachment/evidence.go", "internal/controller/attachment/live.go",
		"internal/controller/node/gone.go", "internal/controller/node/deleted.go", "internal/controller/node/absences.go",
		"internal/controller/node/declarations.go",
		"internal/controller/intent/finalizer.go",
		"internal/agent/plan/plan.go", "internal/agent/plan/facts.go", "internal/agent/plan/wanted.go",
		"internal/agent/plan/ownership.go", "internal/agent/record/source.go",
		"internal/agent/operation/inuse.go", "internal/agent/operation/stage.go", "internal/agent/operation/reference.go",
		"internal/agent/operation/publish.go", "internal/agent/operation/unpublish.go", "internal/agent/operation/unstage.go",
		"internal/agent/operation/ownership.go", "internal/agent/operation/interrupt.go",
		"internal/agent/operation/shutdown.go", "internal/agent/operation/clear.go",
		"internal/agent/operation/environment.go",
		"internal/agent/recovery.go", "internal/agent/kubelet/file.go",
		"internal/agent/report/volume.go", "internal/agent/report/node.go", "internal/agent/report/conditions.go",
	}
	tested = []string{
		"internal/handshake", "internal/controller/attachment/decision", "internal/controller/attachment",
		"internal/controller/outage",
		"internal/controller/node", "internal/controller/intent",
		simulation, "internal/agent", "internal/agent/plan", "internal/agent/record", "internal/agent/operation",
		"internal/agent/report", "internal/agent/kubelet",
	}
)

type options struct {
	only, packages, tests *regexp.Regexp
	sample                uint
	workers               int
	most                  time.Duration
	again, resume         string
	survivors             []byte
	list                  bool
	work                  string
}

func main() {
	o := options{}
	only := flag.String("only", ".", "mutants whose name matches")
	packages := flag.String("packages", ".", "tests of packages whose name matches")
	tests := flag.String("tests", ".", "tests whose name matches")
	flag.UintVar(&o.sample, "sample", 1, "one of this number of mutants, always the same ones")
	flag.IntVar(&o.workers, "workers", 2, "number of concurrent tests")
	flag.DurationVar(&o.most, "most", 3*time.Second,
		"only tests that take no longer: a mutant that only slower tests detect counts as a survivor")
	flag.StringVar(&o.again, "again", "", "only mutants that survived in this results.txt of an earlier run")
	flag.StringVar(&o.resume, "resume", "", "take over what this results.txt of an interrupted run says was killed")
	flag.BoolVar(&o.list, "list", false, "list the mutants")
	flag.StringVar(&o.work, "work", ".cache/mutants", "directory for build results")
	flag.Parse()
	err := errors.Join(compile(&o.only, *only), compile(&o.packages, *packages), compile(&o.tests, *tests))
	if err == nil {
		err = start(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func compile(to **regexp.Regexp, expression string) (err error) {
	*to, err = regexp.Compile(expression)
	return err
}

func start(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	begun := time.Now()
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	if o.work, err = filepath.Abs(o.work); err != nil {
		return err
	}
	paths, err := sources(top)
	if err != nil {
		return err
	}
	t, err := read(top, o.work, paths)
	if err != nil {
		return err
	}
	if o.list {
		for n := range t.mutants {
			if o.wants(t.mutants[n]) {
				fmt.Println(t.mutants[n].ID)
			}
		}
		return nil
	}
	if o.again != "" {
		if o.survivors, err = os.ReadFile(o.again); err != nil {
			return err
		}
	}
	explained, err := readExplained(filepath.Join(top, "hack/mutants/explained.txt"))
	if err != nil {
		return err
	}
	all, err := t.prepare(ctx, o)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(u *unit) bool { return u.took > o.most })
	fmt.Printf("mutants: %d tests and groups of seeds, prepared in %s\n", len(all), time.Since(begun).Round(time.Second))
	return judge(ctx, o, t, all, explained, begun)
}

// wants reports whether the options select the mutant.
func (o options) wants(m mutant) bool {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(m.ID))
	asked := o.survivors == nil || bytes.Contains(o.survivors, []byte("SURVIVED "+m.ID+" (")) ||
		bytes.Contains(o.survivors, []byte("UNREACHED "+m.ID+" ("))
	return asked && o.only.MatchString(m.ID) && uint(hash.Sum32())%o.sample == 0
}

// sources are the files of the scope.
func sources(top string) ([]string, error) {
	var paths []string
	for _, s := range scope {
		if strings.HasSuffix(s, ".go") {
			paths = append(paths, s)
			continue
		}
		found, err := filepath.Glob(filepath.Join(top, s, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if !strings.HasSuffix(f, "_test.go") {
				paths = append(paths, filepath.Join(s, filepath.Base(f)))
			}
		}
	}
	return paths, nil
}

// prepare builds the tests and finds out which mutants each test reaches.
func (t *tree) prepare(ctx context.Context, o options) ([]*unit, error) {
	var all []*unit
	for _, pkg := range tested {
		if !o.packages.MatchString(pkg) {
			continue
		}
		fmt.Println("mutants: building the tests of", pkg)
		binary, err := t.build(ctx, pkg)
		if err != nil {
			return nil, err
		}
		of, err := units(ctx, t.top, pkg, binary)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(of, func(u *unit) bool { return !o.tests.MatchString(u.String()) })...)
	}
	known, err := t.readKnown()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	done := 0
	err = parallel(o.workers, all, func(u *unit) error {
		err := known.record(ctx, t.top, u, o.most)
		mu.Lock()
		defer mu.Unlock()
		done++
		fmt.Printf("mutants: %d/%d %v took %s\n", done, len(all), u, u.took.Round(10*time.Millisecond))
		return err
	})
	return all, err
}

// result of one mutant: killed by a unit, or not.
type result struct {
	mutant
	by      string
	reached int
}

func judge(ctx context.Context, o options, t *tree, all []*unit, explained map[string]string, begun time.Time) error {
	var numbers []int
	for n, m := range t.mutants {
		if o.wants(m) && !t.broken[n] {
			numbers = append(numbers, n)
		}
	}
	earlier, err := killedIn(o.resume)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.work, "results.txt"))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var results []result
	killers := killers{}
	err = parallel(o.workers, numbers, func(n int) error {
		r := result{mutant: t.mutants[n]}
		mu.Lock()
		units := killers.first(r.mutant, reaching(all, n))
		mu.Unlock()
		r.by = earlier[r.ID]
		for _, u := range units {
			if r.by != "" {
				break
			}
			r.reached++
			if _, err := u.run(ctx, t.top, 30*time.Second+4*u.took, fmt.Sprint("HAWSER_MUTANT=", n)); err != nil {
				r.by = u.String()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err() // which has also killed the tests
		}
		mu.Lock()
		defer mu.Unlock()
		results = append(results, r)
		killers.note(r)
		line := fmt.Sprintf("%d/%d %s", len(results), len(numbers), r)
		fmt.Println(line)
		_, err := fmt.Fprintln(log, line)
		return err
	})
	return errors.Join(err, log.Close(), sum(results, explained, time.Since(begun)))
}

// killedIn reads which unit killed which mutant from the results of an earlier run; without a path there are none.
func killedIn(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	by := map[string]string{}
	for line := range strings.Lines(string(text)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " killed ")
		if id, unit, ok := strings.Cut(line, " BY "); ok {
			by[id] = unit
		}
	}
	return by, nil
}

// killers counts how many mutants of a function each unit has killed. The unit that killed one is likely to kill the
// next one.
type killers map[string]map[string]int

func (k killers) note(r result) {
	if r.by == "" {
		return
	}
	if k[r.function()] == nil {
		k[r.function()] = map[string]int{}
	}
	k[r.function()][r.by]++
}

// first moves the units that have killed mutants of the same function to the front.
func (k killers) first(m mutant, units []*unit) []*unit {
	killed := k[m.function()]
	slices.SortStableFunc(units, func(a, b *unit) int { return killed[b.String()] - killed[a.String()] })
	return units
}

func (r result) String() string {
	switch {
	case r.by != "":
		return fmt.Sprintf("killed %s BY %s", r.ID, r.by)
	case r.reached == 0:
		return fmt.Sprintf("UNREACHED %s (line %d)", r.ID, r.line)
	}
	return fmt.Sprintf("SURVIVED %s (line %d, %d tests)", r.ID, r.line, r.reached)
}

// sum prints the score and the survivors. An unexplained survivor is an error, and so is an explained mutant that is
// killed.
func sum(results []result, explained map[string]string, took time.Duration) error {
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.ID, b.ID) })
	survived, wrong := 0, 0
	for _, r := range results {
		why, known := explained[r.ID]
		switch {
		case r.by == "" && !known:
			survived, wrong = survived+1, wrong+1
			fmt.Println(r)
		case r.by == "":
			survived++
			fmt.Printf("%v: %s\n", r, why)
		case known:
			wrong++
			fmt.Printf("%v, though explained: %s\n", r, why)
		}
	}
	fmt.Printf("mutants: %d, of which %d survived, %.1f%%, in %s\n", len(results), survived,
		100*float64(survived)/float64(max(1, len(results))), took.Round(time.Second))
	if wrong > 0 {
		return fmt.Errorf("%d mutants differ from hack/mutants/explained.txt", wrong)
	}
	return nil
}

// readExplained reads why mutants may survive: a name on one line, the reason on the next, indented.
func readExplained(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	explained, name := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			explained[name] += strings.TrimSpace(line) + " "
		default:
			name = line
			explained[name] = ""
		}
	}
	for name, why := range explained {
		if why == "" {
			return nil, fmt.Errorf("%s has no reason why %q may survive", path, name)
		}
	}
	return explained, nil
}

// parallel calls f for all elements, with this number of workers, and ends at the first error.
func parallel[T any](workers int, all []T, f func(T) error) error {
	work, failed := make(chan T), make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for x := range work {
				if err == nil {
					err = f(x)
				}
			}
			failed <- err
		}()
	}
	for _, x := range all {
		work <- x
	}
	close(work)
	var errs []error
	for range workers {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}
