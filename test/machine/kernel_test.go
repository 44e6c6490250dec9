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

// TestRealMountsPassOnTheMachinesKernel runs the tests of other packages that mount, inside a machine. They find their
// files at the paths of their build.
func TestRealMountsPassOnTheMachinesKernel(t *testing.T) {
	o := options("kernel")
	o.MiB, o.Processors = 3072, 2
	m := start(t, o)
	if err := m.MountShare(t.Context()); err != nil {
		t.Fatal(err)
	}
	copyToShare(t, filepath.Join(apiserver.Root(), "config", "crd"), "crd")
	for _, program := range []string{"kube-apiserver", "etcd", "kubectl"} {
		copyToShare(t, filepath.Join(os.Getenv(apiserver.AssetsVariable), program), "assets/"+program)
	}
	must(t, m, "modprobe fuse; mkdir -p %s/config && ln -s %s/crd %[1]s/config/crd", apiserver.Root(), lab.dir)
	for pkg, flags := range map[string]string{
		"./internal/mount": "",
		"./internal/agent": "-test.run=Real|ASickVolume|FUSE",
	} {
		t.Run(pkg, func(t *testing.T) { testInside(t, m, pkg, flags) })
	}
}

func copyToShare(t *testing.T, from, to string) {
	t.Helper()
	to = filepath.Join(lab.dir, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-rT", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying %s: error %v, want success: %s", from, err, out)
	}
}

func testInside(t *testing.T, m *machine.Machine, pkg, flags string) {
	binary := filepath.Join(lab.dir, "bin", filepath.Base(pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", binary, pkg)
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests of %s: error %v, want success: %s", pkg, err, out)
	}
	begin := time.Now()
	answer, err := m.Try(t.Context(), 10*time.Minute, "cd /tmp && KUBEBUILDER_ASSETS=%s/assets "+
		"CSI_LOOP_BINARY=%[1]s/bin/csi-loop %s -test.v '%s' 2>&1", lab.dir, binary, flags)
	if err != nil {
		t.Fatal(err)
	}
	passed := strings.Count(answer.Output, "--- PASS: ")
	t.Logf("%d tests passed in %.0f s", passed, time.Since(begin).Seconds())
	if answer.Exit != 0 || answer.TimedOut || passed == 0 {
		t.Errorf("tests of %s: exit code %d, timed out %t, %d passed, want all: %s", pkg, answer.Exit, answer.TimedOut,
			passed, failures(answer.Output))
	}
	for line := range strings.Lines(answer.Output) {
		if strings.Contains(line, "LEFT OUT") || strings.Contains(line, "--- SKIP") {
			t.Log("left out inside: ", strings.TrimSpace(line))
		}
	}
}

// failures are the lines of the tests that failed.
func failures(output string) string {
	if len(output) > 20000 {
		output = output[len(output)-20000:]
	}
	return output
}
