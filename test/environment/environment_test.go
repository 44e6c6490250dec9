/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// poison exports a poisoned environment until the test ends.
func poison(t *testing.T) *Trap {
	t.Helper()
	for _, name := range []string{"HOME", "KUBECONFIG", "KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST",
		"KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "") // restores it
	}
	trap, err := Poison()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trap.Close(); err != nil {
			t.Error(err)
		}
	})
	return trap
}

// kubectl asks the cluster that its environment leads to. There is none, or it refuses.
func kubectl(t *testing.T, env []string) {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("LEFT OUT (needs KUBEBUILDER_ASSETS, a directory with kubectl): %v", err)
	}
	// Where nothing names a server, its default is a port that somebody may serve on.
	cmd := exec.CommandContext(t.Context(), program, "get", "--raw", "/readyz", "--request-timeout=5s")
	cmd.Env = env
	if err := cmd.Run(); err == nil {
		t.Error("kubectl reached a cluster, want an error")
	}
}

func TestNoProgramFindsTheClusterOfWhoeverRunsTheTests(t *testing.T) {
	trap := poison(t)
	if kubectl(t, os.Environ()); trap.Sprung() == nil {
		t.Fatal("the trap has not seen kubectl, want both the read and the connection")
	}
	kubectl(t, append(os.Environ(), "KUBECONFIG="))
	if err := trap.Sprung(); err == nil {
		t.Fatal("the trap has not seen kubectl, which read the home directory's kubeconfig")
	}
	kubectl(t, With())
	if err := trap.Sprung(); err != nil {
		t.Errorf("after kubectl in the clean environment: %v", err)
	}
}

func TestTheCleanEnvironmentHasWhatIsListedOnly(t *testing.T) {
	poison(t)
	for _, name := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "KUBE_CONTEXT", "AWS_PROFILE", "KUBERC"} {
		t.Setenv(name, "of the user")
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	clean := With("POD_NAMESPACE=storage-system")
	for _, want := range []string{"HOME=" + home, "KUBECONFIG=/dev/null", "PATH=" + os.Getenv("PATH"), "GOFLAGS=-mod=mod",
		"POD_NAMESPACE=storage-system"} {
		if !slices.Contains(clean, want) {
			t.Errorf("the clean environment lacks %s: %q", want, clean)
		}
	}
	for _, variable := range clean {
		name, value, _ := strings.Cut(variable, "=")
		if value == "of the user" || strings.HasPrefix(name, "KUBERNETES_") {
			t.Errorf("the clean environment has %s", variable)
		}
	}
}

// This process has imported the package.
func TestAProcessIsCleanFromItsBeginning(t *testing.T) {
	for name, want := range map[string]string{"HOME": home, "KUBECONFIG": os.DevNull} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
