/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A unit is what runs alone with a mutant: one test, or a few seeds of the simulation, or a life of its crashes.
type unit struct {
	pkg, binary string
	args        []string
	// took is how long it took without a mutant, reached the mutants that it reaches.
	took    time.Duration
	reached map[int]bool
}

func (u unit) String() string { return u.pkg + " " + strings.Join(u.args, " ") }

// seedsEach is how many seeds of the simulation a unit has, and seedUnits how many such units there are.
const (
	seedsEach = 4
	seedUnits = 20
)

// units of a package's tests.
func units(ctx context.Context, top, pkg, binary string) ([]*unit, error) {
	if pkg == simulation {
		var all []*unit
		for i := range seedUnits {
			all = append(all, &unit{pkg: pkg, binary: binary, args: []string{
				"-test.run=^TestSimulation$/^seeds$", fmt.Sprintf("-seeds=%d", seedsEach), fmt.Sprintf("-first=%d", 1+i*seedsEach),
			}})
		}
		for _, life := range []string{"block", "sub_path_of_a_group"} { // which between them have every step
			all = append(all, &unit{pkg: pkg, binary: binary, args: []string{
				"-test.run=^TestAnAgentKilled/^" + life + "$/^Coexist$", "-test.failfast",
			}})
		}
		return all, nil
	}
	list := exec.CommandContext(ctx, binary, "-test.list=.")
	list.Dir = filepath.Join(top, pkg)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", pkg, err)
	}
	var all []*unit
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") {
			all = append(all, &unit{pkg: pkg, binary: binary, args: []string{"-test.run=^" + name + "$", "-test.failfast"}})
		}
	}
	return all, nil
}

// run runs the unit with env and returns its output. As root it runs in its own namespaces, so that its processes and
// mounts end with it.
func (u *unit) run(ctx context.Context, top string, limit time.Duration, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	scratch, err := os.MkdirTemp("", "hawser-mutant-")
	if err != nil {
		return "", err
	}
	defer tidy(context.WithoutCancel(ctx), scratch)
	program := append([]string{u.binary}, u.args...)
	if os.Getuid() == 0 {
		program = append([]string{"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"}, program...)
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Dir = filepath.Join(top, u.pkg)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+scratch), env...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), errTime
	}
	return string(out), err
}

// tidy removes what an interrupted test leaves.
func tidy(ctx context.Context, scratch string) {
	loops, err := exec.CommandContext(ctx, "losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").Output()
	for line := range strings.Lines(string(loops)) {
		if err == nil && strings.Contains(line, scratch) {
			_ = exec.CommandContext(ctx, "losetup", "--detach", strings.Fields(line)[0]).Run()
		}
	}
	_ = os.RemoveAll(scratch)
}

var errTime = errors.New("took much longer than without the mutant")

// record runs the unit without a mutant and notes what it reaches. A unit that takes longer than most is stopped: it is
// not used.
func (u *unit) record(ctx context.Context, top, work string, most time.Duration) error {
	file := filepath.Join(work, fmt.Sprintf("reached-%d", time.Now().UnixNano()))
	defer func() { _ = os.Remove(file) }() // the file does not exist if the test reached nothing
	start := time.Now()
	switch out, err := u.run(ctx, top, most, "HAWSER_MUTANTS_REACHED="+file); {
	case errors.Is(err, errTime) && ctx.Err() == nil:
		u.took = most + 1
		return nil
	case err != nil:
		return fmt.Errorf("%v fails without a mutant: %w\n%s", u, err, out)
	}
	u.took, u.reached = time.Since(start), map[int]bool{}
	numbers, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for number := range strings.FieldsSeq(string(numbers)) {
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		u.reached[n] = true
	}
	return nil
}

// reaching are the units that reach a mutant, the quickest first.
func reaching(all []*unit, n int) []*unit {
	var found []*unit
	for _, u := range all {
		if u.reached[n] {
			found = append(found, u)
		}
	}
	slices.SortFunc(found, func(a, b *unit) int { return int(a.took - b.took) })
	return found
}
