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

// mend is one that can be taken out: in file, with stands in place of without.
type mend struct {
	file, with, without string
	// found is in what the simulation says then.
	found string
}

var mends = map[string]mend{
	"a directory of the node's disk is published": {
		file: "internal/agent/identity.go",
		with: "	wrong := a.notVolume(ctx, v.record, table, path, e)\n", without: "	wrong := error(nil)\n",
		found: "published is the volume",
	},
	"the recorded deadline is too early": {
		file: "internal/agent/call.go",
		with: "within := a.now(), a.DriverTimeout+callGrace", without: "within := a.now(), a.DriverTimeout/8",
		found: "BROKEN",
	},
	"a stage of an earlier boot is believed": {
		file:    "internal/agent/plan.go",
		with:    "s.Phase == PhaseDone && s.BootID == f.now.bootID && (s.Source ==",
		without: "s.Phase == PhaseDone && (s.Source ==",
		found:   "BROKEN",
	},
	"an attachment in use is marked as detaching": {
		file: "internal/handshake/protocol.go",
		with: "p.refuse(GuardNotInUse, !n.InUse() || evidence && (n.Use.UID == uid || n.Use.UID == \"\"" +
			" || n.Entry.Forced)),",
		without: "",
		found:   "BROKEN",
	},
}

// TestTheSimulationFindsEarlierFaults takes minutes for each: everything is built anew.
func TestTheSimulationFindsEarlierFaults(t *testing.T) {
	if !*earlier {
		t.Skip("only with -earlier")
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mends {
		t.Run(name, func(t *testing.T) {
			out := m.runWithout(t, top)
			at := strings.Index(out, "seed ")
			if at < 0 || !strings.Contains(out, m.found) {
				t.Fatalf("not found:\n%s", out[max(0, len(out)-2000):])
			}
			line, _, _ := strings.Cut(out[at:], "\n")
			t.Log(line)
		})
	}
}

// runWithout runs the simulation over a source tree in which the mend is taken out, and returns what it says.
func (m mend) runWithout(t *testing.T, top string) string {
	file, dir := filepath.Join(top, m.file), t.TempDir()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), m.with) != 1 {
		t.Fatalf("%q does not stand once in %s", m.with, m.file)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	write(t, changed, []byte(strings.Replace(string(source), m.with, m.without, 1)))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, replace)
	run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay="+overlay, "-run=TestSimulation",
		"./internal/simulation", "-harsh", fmt.Sprintf("-seeds=%d", max(*seeds, 300)))
	run.Dir = top
	out, err := run.CombinedOutput()
	if err == nil {
		t.Log("no seed failed")
	}
	return string(out)
}

func write(t *testing.T, path string, data []byte) {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
