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

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the tests
)

func TestEachCommandHasAPageThatDependsOnNothingButTheRelease(t *testing.T) {
	// A default that is read from the machine would be in the pages.
	t.Setenv("HOME", "/home/of-this-machine")
	dir := t.TempDir()
	if err := write([]string{"v0.1.0", dir}, "1764201600"); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"kubectl-hawser.1": "Explains why a volume is not there", "kubectl-hawser-why.1": "--watch",
		"kubectl-hawser-plan-drain.1": "Nov 2025", "kubectl-hawser-completion-bash.1": "hawser v0.1.0",
	} {
		data, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("page %s: error %v, want %q in it", page, err, want)
		}
		if strings.Contains(string(data), "of-this-machine") {
			t.Errorf("page %s has the home directory in it", page)
		}
	}
}

func TestPagesNeedADateAndADirectory(t *testing.T) {
	err := write([]string{"v0.1.0", t.TempDir()}, "")
	if err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("without a date: error %v, want one about SOURCE_DATE_EPOCH", err)
	}
	if err = write([]string{"v0.1.0"}, "0"); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("without a directory: error %v, want the usage", err)
	}
}
