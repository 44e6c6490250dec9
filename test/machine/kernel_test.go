/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine"
)

func TestRealMountsPassOnTheMachinesKernel(t *testing.T) {
	t.Parallel()
	runInside(t, restored(t), "./internal/mount", ".", "modprobe fuse")
}

// Tests of the agent with real mounts have "Real" in their names. Their control planes are inside too.
func TestTheAgentsRealMountsPassOnTheMachinesKernel(t *testing.T) {
	needFull(t, "the agent's tests with real mounts on the machine's kernel")
	t.Parallel()
	o := options(nextName())
	o.MiB, o.Processors = 4096, 2
	// Only lab.dir is seen inside.
	assets, manifests := filepath.Join(lab.dir, "assets"), filepath.Join(lab.dir, "config")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(os.MkdirAll(assets, 0o755))
	ok(os.RemoveAll(manifests))
	ok(os.CopyFS(manifests, os.DirFS(filepath.Join(apiserver.Root(), "config"))))
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		program, err := os.ReadFile(filepath.Join(os.Getenv(apiserver.AssetsVariable), name))
		ok(err)
		ok(os.WriteFile(filepath.Join(assets, name), program, 0o755))
	}
	runInside(t, start(t, o), "./internal/agent", "Real", fmt.Sprintf(
		"modprobe -a fuse loop; cp -r %s %s/bin/csi-loop /run; mkdir -p %s; cp -r %s %[3]s; "+
			"export %[5]s=/run/assets CSI_LOOP_BINARY=/run/csi-loop", assets, lab.dir, apiserver.Root(), manifests,
		apiserver.AssetsVariable))
}

// runInside runs the tests of a package whose names match inside a machine. The shell runs before first.
func runInside(t *testing.T, m *machine.Machine, pkg, match, before string) {
	t.Helper()
	if err := m.MountShare(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(pkg) + ".test"
	binary := filepath.Join(lab.dir, "tests", name)
	build := exec.Command("go", "test", "-c", "-o", binary, pkg)
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: error %v, want success: %s", err, out)
	}
	begin := time.Now()
	answer, err := m.Try(t.Context(), time.Hour, "%s; cp %s /run/%s && cd /tmp && /run/%[3]s -test.v -test.run '%s' 2>&1",
		before, binary, name, match)
	if err != nil {
		t.Fatal(err)
	}
	passed := strings.Count(answer.Output, "--- PASS: ")
	t.Logf("%d tests passed in %.0f s", passed, time.Since(begin).Seconds())
	if answer.Exit != 0 || answer.TimedOut || passed == 0 {
		t.Errorf("tests of %s: exit code %d, timed out %t, want that all pass: %s", pkg, answer.Exit, answer.TimedOut,
			failures(answer.Output))
	}
	if specs := passedSpecs.FindString(answer.Output); specs != "" {
		t.Log(specs)
	}
	for line := range strings.Lines(answer.Output) {
		if strings.Contains(line, "LEFT OUT") {
			t.Log("left out inside: ", strings.TrimSpace(line))
		}
	}
}

// passedSpecs is what plugintest.Sanity logs.
var passedSpecs = regexp.MustCompile(`csi-sanity: \d+ specs passed`)

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
