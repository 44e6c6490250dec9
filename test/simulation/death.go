/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// death kills a process before the step of this name, or never. It notes the steps that the process has passed.
type death struct {
	before string
	// then, if set, is called right after.
	then func()

	mu     sync.Mutex
	passed []string
}

// traceless is what changes nothing outside of the process: one that is killed before it leaves the same behind as one
// that is killed before the next step.
var traceless = []string{
	"get ", "list ", "watch ", "taking ", "reading ", "looking for ", "asking ", "opening ", "watching ",
	"before ", "having ",
}

// comes reports whether the process is killed before this. A step has its name and how often it came before.
func (d *death) comes(what string) bool {
	if d == nil || slices.ContainsFunc(traceless, func(t string) bool { return strings.HasPrefix(what, t) }) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	step := what
	for n := 2; slices.Contains(d.passed, step); n++ {
		step = fmt.Sprintf("%s (%d)", what, n)
	}
	d.passed = append(d.passed, step)
	return step == d.before
}

// steps that were passed so far.
func (d *death) steps() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.passed)
}
