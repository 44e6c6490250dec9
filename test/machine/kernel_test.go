/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
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
	t.Parallel()
	runInside(t, restored(t), "./internal/mount", "modprobe fuse")
}

// runInside runs the tests of a package inside a machine. The shell runs before first.
func runInside(t *testing.T, m *machine.Machine, pkg, before string) {
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
		"%s; cp %s /run/%s && cd /tmp && /run/%[3]s -test.v 2>&1", before, binary, name)
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
