/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var earlier = flag.Bool("earlier", false, "take the mends of earlier faults out again, one at a time")

// mend is what was done about a fault. It can be taken out.
type mend struct {
	edits []edit
	// found is in what the simulation says then.
	found string
	// mode in which the seeds run; empty for both.
	mode string
}

// edit puts without in place of with, which stands once in file.
type edit struct{ file, with, without string }

var mends = map[string]mend{
	"a directory of the node's disk is published": {edits: []edit{{
		file: "internal/agent/operation/publish.go",
		with: "	wrong := env.notVolume(ctx, v.Record, table, path, e)\n", without: "	wrong := error(nil)\n",
	}}, found: "published is the volume"},
	"the recorded deadline is too early": {edits: []edit{{
		file: "internal/agent/operation/call.go",
		with: "within := env.Now(), env.DriverTimeout+callGrace", without: "within := env.Now(), env.DriverTimeout/8",
	}}, found: "BROKEN"},
	"a stage of an earlier boot is believed": {edits: []edit{{
		file:    "internal/agent/plan/facts.go",
		with:    "s.Phase == record.PhaseDone && s.BootID == f.Now.BootID && (s.Source ==",
		without: "s.Phase == record.PhaseDone && (s.Source ==",
	}}, found: "BROKEN", mode: "Coexist"},
	"an attachment in use is marked as detaching": {edits: []edit{{
		file: "internal/handshake/protocol.go",
		with: "p.refuse(GuardNotInUse, !n.InUse() || evidence && (n.Use.UID == uid || n.Use.UID == \"\"" +
			" || n.Entry.Forced)),",
		without: "",
	}}, found: "BROKEN"},
	"a declaration gives the node itself another attachment": {edits: []edit{{
		file:    "internal/handshake/protocol.go",
		with:    "return !n.Entry.Forced && !declared || p.answered(n) && !n.Use.InUse || p.rebooted(n)",
		without: "return !n.Entry.Forced || (declared || p.answered(n)) && !n.InUse() || p.rebooted(n)",
	}, {
		file:    "internal/handshake/protocol.go",
		with:    "		p.refuse(GuardEarlierEnded, !n.UsesEarlier(a.UID)),\n",
		without: "",
	}, {
		file: "internal/controller/attachment/decision/attach.go",
		with: "(!n.State.Use.InUse || inherited)", without: "(!n.State.InUse() || inherited)",
	}}, found: "I8 a later life is not harmed"},
	"the taint of a node whose agent reports is believed": {edits: []edit{{
		file:    "internal/handshake/protocol.go",
		with:    "		p.refuse(GuardContradicted, a.Recorded && !a.Contradicted),\n		p.refuse(GuardAgentSilent, n.Silent),\n",
		without: "		p.refuse(GuardContradicted, a.Recorded),\n",
	}}, found: "I9 a live agent is not overruled"},
	"a taint that an agent has contradicted is believed once it falls silent": {edits: []edit{{
		file:    "internal/handshake/protocol.go",
		with:    "p.refuse(GuardContradicted, a.Recorded && !a.Contradicted)",
		without: "p.refuse(GuardContradicted, a.Recorded)",
	}}, found: "on a taint that its agent has contradicted"},
	"an agent waits for a kubelet that waits for the agent": {edits: []edit{{
		file:    "internal/agent/operation/unstage.go",
		with:    "return !slices.Contains(s.AccessModes, corev1.ReadWriteOncePod) ||",
		without: "return true ||",
	}}, found: "what is wanted is not there"},
	"an agent waits for a device that the kubelet has mounted": {edits: []edit{{
		file: "internal/agent/operation/device.go",
		with: "if kubelets.Checks(d.Device) {", without: "if false && kubelets.Checks(d.Device) {",
	}}, found: "what is wanted is not there", mode: "Replace"},
	"a Node lists a volume for pods that are gone beside its single user": {edits: []edit{{
		file:    "internal/controller/attachment/decision/user.go",
		with:    "return f.Replace && f.SingleUser && n.Lists.Attached &&",
		without: "return false && f.Replace && n.Lists.Attached &&",
	}}, found: "single user"},
	"a machine releases what another one of its name uses": {edits: []edit{{
		file: "internal/handshake/agent.go",
		with: "return p.refuse(GuardSameMachine, n.vouched())", without: "return GuardNone",
	}}, found: "BROKEN", mode: "Coexist"},
	"a machine takes over what another one of its name uses": {edits: []edit{{
		file: "internal/machine/machine.go",
		with: "		if !line.InUse || Compare(self, user) != Other {", without: "		if true || Compare(self, user) != Other {",
	}}, found: "BROKEN", mode: "Coexist"},
	"two intents are the single user of a volume": {edits: []edit{{
		file:    "internal/controller/attachment/decision/decide.go",
		with:    "(first == nil || f.LockNames(i) || !f.LockNames(first) && i.older(first))",
		without: "(first == nil || i.older(first))",
	}, {
		file: "internal/controller/attachment/decision/user.go",
		with: "return f.Lock.Exists && f.Lock.Holder == n.Name && f.Lock.MovedFrom == \"\" &&" +
			" (user == \"\" || f.Lock.User == user)",
		without: "return f.Lock.Exists && f.Lock.Holder == n.Name && f.Lock.MovedFrom == \"\" && user == user",
	}, {
		file: "internal/handshake/user.go",
		with: "return p.refuse(GuardUserLocked, c.Exists && c.User == user)", without: "return GuardNone",
	}}, found: "single user"},
}

// TestTheSimulationFindsEarlierFaults takes minutes for each: everything is built again. Without -earlier it only holds
// that each mend is still found in the code.
func TestTheSimulationFindsEarlierFaults(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mends {
		t.Run(name, func(t *testing.T) {
			overlay := m.overlay(t, top)
			if !*earlier {
				return
			}
			out := m.runWithout(t, top, overlay)
			at := strings.Index(out, "seed ")
			if at < 0 || !strings.Contains(out, m.found) {
				t.Fatalf("simulation without the mend of %q: no seed failed with %q, want one:\n%s", name, m.found, out[max(0,
					len(out)-2000):])
			}
			line, _, _ := strings.Cut(out[at:], "\n")
			t.Log(line)
		})
	}
}

// runWithout runs the simulation over a source tree in which the mend is taken out, and returns what it says.
func (m mend) runWithout(t *testing.T, top, overlay string) string {
	run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-timeout=30m", "-overlay="+overlay,
		"-run=TestSimulation|TestTwoIntents",
		"./test/simulation", "-harsh", fmt.Sprintf("-seeds=%d", max(*seeds, 600)), "-mode="+m.mode)
	run.Dir = top
	out, err := run.CombinedOutput()
	if err == nil {
		t.Log("no seed failed")
	}
	return string(out)
}

// overlay returns the file by which go builds the tree without the mend.
func (m mend) overlay(t *testing.T, top string) string {
	dir, sources, paths := t.TempDir(), map[string]string{}, map[string]string{}
	for _, e := range m.edits {
		file := filepath.Join(top, e.file)
		if sources[file] == "" {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources[file], paths[file] = string(source), filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		}
		if strings.Count(sources[file], e.with) != 1 {
			t.Fatalf("%s: %q occurs %d times, want once", e.file, e.with, strings.Count(sources[file], e.with))
		}
		sources[file] = strings.Replace(sources[file], e.with, e.without, 1)
		write(t, paths[file], []byte(sources[file]))
	}
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": paths})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, replace)
	return overlay
}

func write(t *testing.T, path string, data []byte) {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
