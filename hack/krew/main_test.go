/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachArchiveIsAPlatformWithItsChecksum(t *testing.T) {
	dir := t.TempDir()
	var archives []string
	for _, name := range []string{"linux_arm64", "windows_amd64"} {
		archive := filepath.Join(dir, "kubectl-hawser_v0.1.0_"+name+".tar.gz")
		if err := os.WriteFile(archive, []byte("archive"), 0o600); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	out, err := print("v0.1.0", archives)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"arch: arm64\n        os: linux", "bin: kubectl-hawser\n", "bin: kubectl-hawser.exe\n", "version: v0.1.0\n",
		"/releases/download/v0.1.0/kubectl-hawser_v0.1.0_linux_arm64.tar.gz",
		"sha256: 0eb3e36bfb24dcd9bb1d1bece1531216b59539a8fde17ee80224af0653c92aa3",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the manifest has no %q:\n%s", want, out)
		}
	}
}

func TestAnArchiveOfAnotherVersionIsRefused(t *testing.T) {
	for _, name := range []string{"kubectl-hawser_v0.2.0_linux_amd64.tar.gz", "hawser_v0.1.0_linux_amd64.tar.gz",
		"kubectl-hawser_v0.1.0_linux.tar.gz", "kubectl-hawser_v0.1.0_linux_amd64.zip"} {
		if _, err := print("v0.1.0", []string{name}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("archive %s: error %v, want one that names it", name, err)
		}
	}
}
