/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package parity checks docs/internals/parity.md and the limits in docs/security.md: every test that they name must
// exist.
package parity

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// reference is a test in the notation of the page: `package TestName/the name of a case`.
var reference = regexp.MustCompile("`([a-z0-9/]+) (Test[A-Za-z]+)(?:/([^`]+))?`")

func TestEveryTestThatThePageOfParityNamesExists(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", "internals", "parity.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || cells[0] == "| Upstream" {
			continue
		}
		rows++
		found := reference.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 && !strings.HasPrefix(cells[2], "none: ") {
			t.Errorf("row %s names no test, want one, or none: and why", cells[0])
		}
		if n := strings.Count(cells[2], "`"); n != 2*len(found) {
			t.Errorf("cell %q: %d quotes for %d names, want 2 for each, so that every name can be parsed", cells[2], n,
				len(found))
		}
		for _, f := range found {
			exists(t, f[1], f[2], f[3])
		}
	}
	if rows < 40 {
		t.Errorf("%d rows were read, want at least 40", rows)
	}
}

func TestEveryLimitOfWhatATenantCanCreateHasATest(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Limits of what a tenant can create\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 4 || cells[0] == "What" {
			continue
		}
		rows++
		found := reference.FindAllStringSubmatch(cells[3], -1)
		if len(found) == 0 {
			t.Errorf("the limit of %q names no test, want one", cells[0])
		}
		for _, f := range found {
			exists(t, f[1], f[2], f[3])
		}
	}
	if rows < 12 {
		t.Errorf("%d limits were read, want at least 12", rows)
	}
	for name, limit := range map[string]int{
		"MaxUses": volumesv1alpha1.MaxUses, "MaxNamespaceUses": volumesv1alpha1.MaxNamespaceUses,
		"MaxNamespacePlaces": volumesv1alpha1.MaxNamespacePlaces, "ShownPublications": volumesv1alpha1.ShownPublications,
	} {
		if want := fmt.Sprintf("| %d (`%s`)", limit, name); !strings.Contains(section, want) {
			t.Errorf("the page does not have %q, want the number of the code", want)
		}
	}
}

// exists checks that the test's function exists and, as a string, the name of its case.
func exists(t *testing.T, pkg, test, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(apiserver.Root(), filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(data)
	}
	if !strings.Contains(source.String(), "\nfunc "+test+"(") {
		t.Errorf("%s has no %s, want it", pkg, test)
	}
	if name != "" && !strings.Contains(source.String(), strconv.Quote(name)) {
		t.Errorf("%s has no case %q, want it", pkg, name)
	}
}
