/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

var update = flag.Bool("update", false, "write the expected reports of testdata/why")

// noon is when the reports of the golden files are made.
var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// subjectOf is what a fixture asks about.
func subjectOf(t *testing.T, f fixture) facts.Ref {
	t.Helper()
	var args []string
	ref := facts.Ref{}
	for i := 1; i < len(f.args); i++ {
		if f.args[i] == "-n" {
			i++
			ref.Namespace = f.args[i]
			continue
		}
		args = append(args, f.args[i])
	}
	var err error
	if ref.Kind, ref.Name, err = kindAndName(args); err != nil {
		t.Fatal(err)
	}
	return ref
}

// explainFixture makes the report of a fixture from a Reader.
func explainFixture(t *testing.T, f fixture, r facts.Reader, now time.Time) *explain.Report {
	t.Helper()
	ref := subjectOf(t, f)
	g := &facts.Gatherer{Reader: r, System: "hawser-system", Now: func() time.Time { return now }}
	found, err := g.Gather(t.Context(), ref)
	if err != nil {
		t.Fatalf("gathering the facts about %s: %v, want success", ref, err)
	}
	return explain.Explain(found)
}

func TestReportsOfBrokenSituations(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		t.Run(f.name, func(t *testing.T) {
			got := text(explainFixture(t, f, newFakeReader(t, f), noon), false, false)
			golden(t, filepath.Join("testdata", "why", f.name+".txt"), got)
		})
	}
}

// golden compares a report with a file, or writes it there.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("report differs from %s (-want +got):\n%s", path, diff)
	}
}
