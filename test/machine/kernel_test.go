/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/apiserver"
)

// inside is a run of a package's tests inside a machine.
type inside struct {
	// pkg has the tests, of which those with names that match run.
	pkg, match string
	// prepare is a script, environment what the tests get.
	prepare, environment string
}

func TestRealMountsPassOnTheMachinesKernel(t *testing.T) {
	for _, i := range []inside{
		{pkg: "internal/mount", match: ".", prepare: "modprobe fuse"},
		{pkg: "internal/agent", match: "^TestReal", prepare: "modprobe -a fuse loop; cp " + filepath.Join(lab.dir, "bin",
			"csi-loop") + " /run/", environment: "CSI_LOOP_BINARY=/run/csi-loop " + apiserver.OutsideVariable + "=" +
			filepath.Join(lab.dir, "lent")},
	} {
		t.Run(filepath.Base(i.pkg), i.pass)
	}
}

// pass builds the tests, and runs them inside. Control planes are outside, because a machine is too slow for them.
func (i inside) pass(t *testing.T) {
	m := restored(t)
	if err := m.MountShare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i.environment != "" {
		lent := filepath.Join(lab.dir, "lent")
		if err := errors.Join(os.RemoveAll(lent), os.MkdirAll(lent, 0o755)); err != nil {
			t.Fatal(err)
		}
		apiserver.Lend(t, lent, "10.0.2.2", 5) // as many as tests that match
	}
	binary := filepath.Join(lab.dir, "bin", filepath.Base(i.pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", binary, "./"+i.pkg)
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: error %v, want success: %s", err, out)
	}
	begin := time.Now()
	answer, err := m.Try(t.Context(), 15*time.Minute, "%s; cp %s /run/program.test && cd /tmp && "+
		"%s /run/program.test -test.v -test.run '%s' 2>&1", i.prepare, binary, i.environment, i.match)
	if err != nil {
		t.Fatal(err)
	}
	passed := strings.Count(answer.Output, "--- PASS: ")
	t.Logf("%d tests of %s passed in %.0f s", passed, i.pkg, time.Since(begin).Seconds())
	if answer.Exit != 0 || answer.TimedOut || passed == 0 {
		t.Errorf("tests of %s: exit code %d, timed out %t, want that all pass: %s", i.pkg, answer.Exit, answer.TimedOut,
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
