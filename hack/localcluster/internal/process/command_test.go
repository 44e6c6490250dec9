/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAProgramIsLedToNoClusterOfItsCaller(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "HOME", "KUBERC", "KUBERNETES_SERVICE_HOST", "KUBERNETES_MASTER",
		"HTTPS_PROXY", "https_proxy", "GOOGLE_APPLICATION_CREDENTIALS"} {
		t.Setenv(name, "of-the-caller")
	}
	t.Setenv("POD_NAMESPACE", "storage-system")
	dir := Directory(t.TempDir())
	out, end := filepath.Join(string(dir), "environment"), filepath.Join(string(dir), "end")
	if err := unix.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	// A program that ends at once may end before it is recorded.
	_, ended := start(t, dir, "env > "+out+"; cat "+end)
	if err := os.WriteFile(end, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.Split(string(got), "\n")
	for _, want := range []string{"HOME=/proc/home-of-nobody", "POD_NAMESPACE=storage-system",
		"PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(variables, want) {
			t.Errorf("the program's environment lacks %s:\n%s", want, got)
		}
	}
	// csi-provisioner prefers KUBECONFIG to its --kubeconfig, whatever it is.
	if strings.Contains(string(got), "of-the-caller") || strings.Contains(string(got), "KUBECONFIG=") {
		t.Errorf("the program's environment has variables that lead to clusters of the caller:\n%s", got)
	}
}

func TestEveryProgramIsStartedWithACleanEnvironment(t *testing.T) {
	top := filepath.Join("..", "..")
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Base(path) == "command.go" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, call := range []string{"exec.Command", "os.StartProcess", "ForkExec(", "syscall.Exec("} {
			if strings.Contains(string(source), call) {
				t.Errorf("%s calls %s; programs are started with process.Command", path, call)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
