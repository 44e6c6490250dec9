/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
)

// real are the suites in which programs come into the situation by themselves, and the verdict is compared with what is
// broken there. A code is found by the name of its reason, or by itself.
var real = []string{"test/verdict", "test/e2e", "test/manager"}

// played are the packages whose tests have situations that were written down as objects.
var played = []string{"internal/doctor", "internal/preflight", "internal/explain", "internal/cli"}

// compared is a verdict of a test of real: its code, or the constant of its reason.
var compared = regexp.MustCompile(`verdict\{"(HWS\d{3})"|later: "(HWS\d{3})"|reason: volumesv1alpha1\.(Reason\w+)` +
	`|\b(?:waits|explained|reason)\([^;{}]{0,200}?\.(Reason\w+|CallTimedOut)`)

func TestTheTableOfSituationsIsMadeFromTheTests(t *testing.T) {
	path := filepath.Join(root(), "docs", "internals", "situations.md")
	want := situations(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/internals/situations.md differs from the tests, error %v; run go test %s", err,
			"./internal/explain/catalog -update")
	}
}

func TestEveryCodeIsTriedInASituation(t *testing.T) {
	reports, tables, suites := reports(t), mentions(t), comparisons(t)
	for _, e := range catalog.All() {
		if e.Level != catalog.Fine && len(reports[e.Code]) == 0 && of(tables, e) == "" && of(suites, e) == "" {
			t.Errorf("%s %s has neither a report nor a table nor a comparison, want a situation in internal/cli/testdata/why",
				e.Code, e.Reason)
		}
	}
}

// situations is docs/internals/situations.md.
func situations(t *testing.T) string {
	t.Helper()
	reports, tables, suites, obeying := reports(t), mentions(t), comparisons(t), carried(t)
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(`# Situations of each finding

Where each code of [the reference](../reference/findings.md) is tried. The page is made from the tests by
'go test ./internal/explain/catalog -update'.

- **Reports** are whole situations as objects in 'internal/cli/testdata', each with the report that is printed.
- **Tables** are packages with a test that names the code, most of them with one changed object in a healthy chain.
- **Compared** are suites in which real programs come into the situation by themselves, and the verdict is compared with
  what is broken there.
- **Carried out** are suites with real programs that read the advice, do what it advises, and wait until the wait has
  ended. 'test/advice' ('make test-advice') has a cluster with Hawser, and for 'preflight' an API server without it;
  'test/verdict' ([verdicts.md](verdicts.md)) has a cluster without it and with kubelets. Where there is none, the
  reason is given.

Codes that mean that all is well are left out. 'internal/explain/catalog' itself tries the commands and the ways out of
all codes with every state of the objects that they name.

| Code | Reason | Carried out | Reports | Tables | Compared |
|---|---|---|---|---|---|
`, "'", "`"))
	for _, e := range catalog.All() {
		if e.Level == catalog.Fine {
			continue
		}
		fmt.Fprintf(&b, "| [%s](../reference/findings.md#%s) | %s | %s | %s | %s | %s |\n", e.Code,
			strings.ToLower(e.Code), e.Reason, out(obeying, e.Code), strings.Join(reports[e.Code], ", "),
			of(tables, e), of(suites, e))
	}
	return b.String()
}

// of are the directories that were found for a code, or its reason.
func of(found map[string][]string, e catalog.Entry) string {
	all := slices.Concat(found[e.Code], found[e.Reason])
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// reports are the names of the situations in testdata, by the codes that are found in them.
func reports(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(), "internal", "cli", "testdata", "*", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d reports, error %v; want some", len(files), err)
	}
	found := map[string][]string{}
	for _, file := range files {
		for _, code := range groupsIn(t, file, regexp.MustCompile(`(?m)^[ \d]*(HWS\d{3}) `)) {
			found[code] = append(found[code], strings.TrimSuffix(filepath.Base(file), ".txt"))
		}
	}
	return found
}

// mentions are the directories that have a test which names the code or the reason.
func mentions(t *testing.T) map[string][]string {
	t.Helper()
	return found(t, played, regexp.MustCompile(`"(HWS\d{3})[" ]|\b(?:catalog|volumesv1alpha1)\.([A-Z]\w+)`))
}

// comparisons are the suites of real, by codes and by reasons.
func comparisons(t *testing.T) map[string][]string {
	t.Helper()
	return found(t, real, compared)
}

// found are the directories with a test that matches, by the code or the reason that matched.
func found(t *testing.T, directories []string, pattern *regexp.Regexp) map[string][]string {
	t.Helper()
	constants := constantsOf(t, "internal/explain/catalog")
	maps.Copy(constants, reasonsOf(t))
	found := map[string][]string{}
	for _, directory := range directories {
		for _, file := range tests(t, directory) {
			for _, name := range groupsIn(t, file, pattern) {
				if reason, ok := constants[name]; ok {
					name = reason
				}
				if !slices.Contains(found[name], directory) {
					found[name] = append(found[name], directory)
				}
			}
		}
	}
	return found
}

func tests(t *testing.T, directory string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(), filepath.FromSlash(directory), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d tests in %s, error %v; want some", len(files), directory, err)
	}
	return files
}

// groupsIn are the groups of all matches in a file, each once.
func groupsIn(t *testing.T, file string, pattern *regexp.Regexp) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, groups := range pattern.FindAllStringSubmatch(string(text), -1) {
		found = append(found, strings.Join(groups[1:], ""))
	}
	slices.Sort(found)
	return slices.Compact(found)
}
