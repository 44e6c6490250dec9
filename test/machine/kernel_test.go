/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine"
)

func TestRealMountsPassOnTheMachinesKernel(t *testing.T) {
	runInside(t, restored(t), "./internal/mount", ".", "modprobe fuse")
}

// The control planes of the agent's tests are outside, because a machine is too slow for them.
func TestTheAgentsRealMountsPassOnTheMachinesKernel(t *testing.T) {
	lent := filepath.Join(lab.dir, "lent")
	if err := errors.Join(os.RemoveAll(lent), os.MkdirAll(lent, 0o755)); err != nil {
		t.Fatal(err)
	}
	apiserver.Lend(t, lent, "10.0.2.2", 5) // as many as tests that match
	runInside(t, restored(t), "./internal/agent", "^TestReal", fmt.Sprintf("modprobe -a fuse loop; cp %s /run/csi-loop; "+
		"export CSI_LOOP_BINARY=/run/csi-loop %s=%s", filepath.Join(lab.dir, "bin", "csi-loop"), apiserver.OutsideVariable,
		lent))
}

// runInside runs the tests of a package whose names match inside a machine. The shell runs before first.
func runInside(t *testing.T, m *machine.Machine, pkg, match, before string) {
	t.Helper()
	if err := m.MountShare(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(pkg) + ".test"
	binary := filepath.Join(lab.dir, "bin", name)
	build := exec.Command("go", "test", "-c", "-o", binary, pkg)
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: error %v, want success: %s", err, out)
	}
	begin := time.Now()
	answer, err := m.Try(t.Context(), 15*time.Minute,
		"%s; cp %s /run/%s && cd /tmp && /run/%[3]s -test.v -test.run '%s' 2>&1", before, binary, name, match)
	if err != nil {
		t.Fatal(err)
	}
	passed := strings.Count(answer.Output, "--- PASS: ")
	t.Logf("%d tests passed in %.0f s", passed, time.Since(begin).Seconds())
	if answer.Exit != 0 || answer.TimedOut || passed == 0 {
		t.Errorf("tests of %s: exit code %d, timed out %t, want that all pass: %s", pkg, answer.Exit, answer.TimedOut,
			failures(answer.Output))
	}
	for line := range strings.Lines(answer.Output) {
		if strings.Contains(line, "LEFT OUT") {
			t.Log("left out inside: ", strings.TrimSpace(line))
		}
	}
}

// failures are the lines about the tests that did not pass.
func failures(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
