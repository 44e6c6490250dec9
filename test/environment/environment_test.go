/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// kubectl asks the cluster that its environment leads to.
func kubectl(t *testing.T) error {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("LEFT OUT (needs KUBEBUILDER_ASSETS): %v", err)
	}
	// Its own default is a port that somebody may serve on.
	return exec.CommandContext(t.Context(), program, "get", "--raw", "/readyz", "--request-timeout=5s").Run()
}

func TestNoProgramFindsTheClusterOfWhoeverRunsTheTests(t *testing.T) {
	for _, name := range []string{"HOME", "KUBECONFIG", "KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST",
		"KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "") // restores it
	}
	trap, err := Poison(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer trap.Close() //nolint:errcheck // the test is over
	if err := kubectl(t); err == nil || trap.Asked() == 0 {
		t.Fatalf("kubectl in the poisoned environment: error %v, %d connections; want an error and some", err, trap.Asked())
	}
	before := trap.Asked()
	if err := Clean(); err != nil {
		t.Fatal(err)
	}
	if err := kubectl(t); err == nil || trap.Asked() != before {
		t.Errorf("kubectl in the clean environment: error %v, %d more connections; want an error and none",
			err, trap.Asked()-before)
	}
	// The home directory alone.
	if err := os.Unsetenv("KUBECONFIG"); err != nil {
		t.Fatal(err)
	}
	if _ = kubectl(t); trap.Asked() == before {
		t.Error("kubectl without KUBECONFIG did not read the poisoned home directory, which shows nothing")
	}
}
