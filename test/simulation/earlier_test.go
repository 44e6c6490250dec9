/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var earlier = flag.Bool("earlier", false, "bring earlier faults back, one at a time")

// earlierFault is a fault that the simulation has found, or should have found.
type earlierFault struct {
	alterations []alteration
	// found is in what the simulation reports then.
	found string
	// mode in which the seeds run; empty for both.
	mode string
	// story that finds it; empty for the seeds.
	story string
}

// alteration brings a fault back: the function of this package begins with these statements. They return another
// result, or change what the function is called with, so they outlast a change of what follows.
type alteration struct{ pkg, function, begins string }

// withoutGuard is a function of the protocol that does not refuse by the guard.
func withoutGuard(function, guard string) alteration {
	return alteration{"internal/handshake", function, "p.without = " + guard}
}

const (
	agentOperation = "internal/agent/operation"
	decision       = "internal/controller/attachment/decision"
)

var earlierFaults = map[string]earlierFault{
	"a directory of the node's disk is published": {alterations: []alteration{
		{agentOperation, "Environment.notVolume", "return nil"},
	}, found: "published is the volume"},
	"the recorded deadline is too early": {alterations: []alteration{
		{agentOperation, "Environment.NewCall", "hasty := *env; hasty.DriverTimeout /= 8; env = &hasty"},
	}, found: "BROKEN"},
	"a stage of an earlier boot is believed": {alterations: []alteration{
		{"internal/agent/plan", "Facts.Staged", "f.Now.BootID = f.Record.Stage.BootID"},
	}, found: "BROKEN", mode: "Coexist"},
	"an attachment in use is marked as detaching": {alterations: []alteration{
		withoutGuard("Protocol.MayMarkDetaching", "GuardNotInUse"),
	}, found: "BROKEN"},
	"a declaration gives the node itself another attachment": {alterations: []alteration{
		{"internal/handshake", "Protocol.ForcedAwayReported",
			"if _, declared := n.Declares(n.Entry.UID); declared && !n.InUse() { return true }"},
		withoutGuard("Protocol.MayWriteAttached", "GuardEarlierEnded"),
		{decision, "attachable", "defer func(use handshake.Use) { n.State.Use = use }(n.State.Use); " +
			"n.State.Use.InUse = n.State.InUse()"},
	}, found: "I8 a later life is not harmed"},
	"the taint of a node whose agent reports is believed": {alterations: []alteration{
		{"internal/handshake", "Protocol.MayRelyOn", "a.Contradicted, n.Silent = false, true"},
	}, found: "I9 a live agent is not overruled"},
	"a taint that an agent has contradicted is believed once it falls silent": {alterations: []alteration{
		{"internal/handshake", "Protocol.MayRelyOn", "a.Contradicted = false"},
	}, found: "on OutOfServiceTaint, which its agent has contradicted"},
	"a fence that an agent has contradicted counts": {alterations: []alteration{
		{"internal/handshake", "FenceAssertion",
			"record.Contradicted, heard = nil, Heard{Renewal: record.LastRenewal, Session: record.LastSession}"},
	}, found: "on Fenced, which its agent has contradicted"},
	"a fence counts that was lifted since it was recorded": {alterations: []alteration{
		{"internal/controller/fences", "Watcher.Holds", "return true, nil"},
	}, found: "a fence counts if it was read to hold"},
	"an agent waits for a kubelet that waits for the agent": {alterations: []alteration{
		{agentOperation, "kubeletMayUse", "s.AccessModes = nil"},
	}, found: "what is wanted is not there"},
	"an agent waits for a device that the kubelet has mounted": {alterations: []alteration{
		{"internal/agent/kubelet", "TrackedUse.Checks", "return false"},
	}, found: "the intent is not let go", story: "TestAnAgentDoesNotWaitForADevice"},
	"a Node lists a volume for pods that are gone beside its single user": {alterations: []alteration{
		{decision, "Facts.ListedForAnother", "return false"},
	}, found: "single user"},
	"a machine releases what another one of its name uses": {alterations: []alteration{
		withoutGuard("Protocol.MayDropForeign", "GuardSameMachine"),
	}, found: "BROKEN", mode: "Coexist"},
	"a machine takes over what another one of its name uses": {alterations: []alteration{
		{"internal/machine", "Others", "return nil"},
	}, found: "BROKEN", mode: "Coexist"},
	"two intents are the single user of a volume": {alterations: []alteration{
		{decision, "KeepOneUser", `other := *f; other.Lock.User = ""; f = &other`},
		{decision, "Facts.Locked", "other := *f; other.Lock.User = f.LockUser(n).UID; f = &other"},
		withoutGuard("Protocol.MayPin", "GuardUserLocked"),
	}, found: "single user", story: "TestTwoIntents"},
}

// TestTheSimulationFindsEarlierFaults takes minutes for each: everything is built again. Without -earlier it only holds
// that the code still compiles with all of them.
func TestTheSimulationFindsEarlierFaults(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if !*earlier {
		compileAll(t, top)
		return
	}
	for name, e := range earlierFaults {
		t.Run(name, func(t *testing.T) {
			out := e.runWith(t, top)
			at := strings.Index(out, "seed ")
			if at < 0 || !strings.Contains(out, e.found) {
				t.Fatalf("simulation with the fault %q: no seed failed with %q, want one:\n%s", name, e.found, out[max(0,
					len(out)-2000):])
			}
			line, _, _ := strings.Cut(out[at:], "\n")
			t.Log(line)
		})
	}
}

// runWith runs the simulation over a source tree that has the fault, and returns its output.
func (e earlierFault) runWith(t *testing.T, top string) string {
	run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-timeout=30m",
		"-overlay="+overlay(t, top, e.alterations), "-run="+cmp.Or(e.story, "TestSimulation"), "./test/simulation", "-harsh",
		fmt.Sprintf("-seeds=%d", max(*seeds, 600)), "-mode="+e.mode)
	run.Dir = top
	out, err := run.CombinedOutput()
	if err == nil {
		t.Log("no seed failed")
	}
	return string(out)
}

// compileAll compiles the code with all faults at once. None of them is ever reached.
func compileAll(t *testing.T, top string) {
	var all []alteration
	args := []string{"build", "-overlay=", "--"}
	for _, e := range earlierFaults {
		for _, a := range e.alterations {
			all = append(all, alteration{a.pkg, a.function, "if false { " + a.begins + " }"})
			args = append(args, "./"+a.pkg)
		}
	}
	args[1] += overlay(t, top, all)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("the code with earlier faults: %v, want that it compiles:\n%s", err, out)
	}
}

// overlay returns the file by which go builds the altered tree.
func overlay(t *testing.T, top string, alterations []alteration) string {
	dir, sources, paths := t.TempDir(), map[string][]byte{}, map[string]string{}
	for _, a := range alterations {
		file, at := a.find(t, top, sources)
		sources[file] = slices.Insert(sources[file], at, []byte(" "+a.begins+"; ")...)
		paths[file] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
	}
	for file, source := range sources {
		write(t, paths[file], source)
	}
	path := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": paths})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, replace)
	return path
}

// find the beginning of the function, in sources that may be altered already.
func (a alteration) find(t *testing.T, top string, sources map[string][]byte) (file string, at int) {
	files, err := filepath.Glob(filepath.Join(top, a.pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, altered := sources[file]
		if !altered {
			if source, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == a.function {
				sources[file] = source
				return file, set.Position(f.Body.Lbrace).Offset + 1
			}
		}
	}
	t.Fatalf("package %s has no function %s, want it, for an earlier fault", a.pkg, a.function)
	return "", 0
}

// nameOf the function, with its receiver's type.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	return types.ExprString(receiver) + "." + f.Name.Name
}

func write(t *testing.T, path string, data []byte) {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
