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
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine"
)

// inside is a run of a package's tests inside a machine.
type inside struct {
	*machine.Machine
	t *testing.T
	// pkg has the tests, of which those with names that match run.
	pkg, match string
	// prepare is a script, environment what the tests get.
	prepare, environment string
}

func TestRealMountsPassOnTheMachinesKernel(t *testing.T) {
	i := inside{Machine: restored(t), t: t, pkg: "internal/mount", match: ".", prepare: "modprobe fuse"}
	i.ok(i.MountShare(t.Context()))
	i.pass()
}

// The agent's tests have their own API server, for which the other machines are too small.
func TestTheAgentsRealMountsPassOnTheMachinesKernel(t *testing.T) {
	o := options("agents-tests")
	o.MiB, o.Processors = 3072, 2
	i := inside{Machine: start(t, o), t: t, pkg: "internal/agent", match: "^TestReal"}
	i.ok(i.MountShare(t.Context()))
	top, assets := apiserver.Root(), os.Getenv(apiserver.AssetsVariable)
	shared := filepath.Join(lab.dir, "bin", "api")
	i.ok(os.MkdirAll(shared, 0o755))
	for _, file := range []string{filepath.Join(assets, "kube-apiserver"), filepath.Join(assets, "etcd"),
		filepath.Join(top, "config", "crd")} {
		out, err := exec.CommandContext(t.Context(), "cp", "-r", file, shared).CombinedOutput()
		if err != nil {
			t.Fatalf("copying %s: error %v, want success: %s", file, err, out)
		}
	}
	i.prepare = fmt.Sprintf("modprobe -a fuse loop; cp -r %[1]s /run/api; cp %[1]s/../csi-loop /run/; "+
		"mkdir -p %[2]s/config %[2]s/internal/agent; cp -r /run/api/crd %[2]s/config/", shared, top)
	i.environment = apiserver.AssetsVariable + "=/run/api CSI_LOOP_BINARY=/run/csi-loop"
	i.pass()
}

func (i *inside) ok(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// pass builds the tests, and runs them inside.
func (i *inside) pass() {
	t := i.t
	t.Helper()
	binary := filepath.Join(lab.dir, "bin", filepath.Base(i.pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", binary, "./"+i.pkg)
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: error %v, want success: %s", err, out)
	}
	begin := time.Now()
	answer, err := i.Try(t.Context(), 20*time.Minute, "%s; cp %s /run/program.test && cd /tmp && "+
		"%s /run/program.test -test.v -test.run '%s' -test.timeout 20m 2>&1", i.prepare, binary, i.environment, i.match)
	i.ok(err)
	passed := strings.Count(answer.Output, "--- PASS: ")
	t.Logf("%d tests passed in %.0f s", passed, time.Since(begin).Seconds())
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
