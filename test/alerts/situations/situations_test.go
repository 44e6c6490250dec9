/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package situations

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/test/alerts/scale"
	"github.com/hawser-io/hawser/test/apiserver"
)

func rows(t *testing.T) []Situation {
	t.Helper()
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{apiserver.Root()}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheTableHasTenDifferentSituations(t *testing.T) {
	var names []string
	for _, s := range rows(t) {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if got := slices.Compact(slices.Clone(names)); len(got) != 10 || len(names) != 10 {
		t.Errorf("situations %q, want ten, each once", names)
	}
}

func TestEachFindingOfTheTableIsThatOfTheCatalog(t *testing.T) {
	for _, s := range rows(t) {
		if e := catalog.OfReason(s.Finding); e.Code != s.Code || e.Reason != s.Finding {
			t.Errorf("%s: finding %s %s, want %s %s as in the catalog", s.Name, s.Code, s.Finding, e.Code, e.Reason)
		}
	}
}

func TestEachAlertOfTheTableIsShipped(t *testing.T) {
	rules, err := scale.Parse([]byte(read(t, "config", "prometheus", "hawser.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rows(t) {
		for _, alert := range s.Alerts {
			if !slices.ContainsFunc(rules.All(), func(r scale.Rule) bool { return r.Alert == alert }) {
				t.Errorf("%s: no alert %s is shipped", s.Name, alert)
			}
		}
	}
}

// A reader of the alert comes to its page, and has to find there what the other two columns show.
func TestTheRunbookOfEachSituationNamesItsReasonAndItsFinding(t *testing.T) {
	for _, s := range rows(t) {
		if !slices.Contains(s.Alerts, s.Runbook) {
			t.Errorf("%s: the page of %s, want that of one of the alerts %q", s.Name, s.Runbook, s.Alerts)
		}
		page := read(t, "docs", "runbooks", s.Runbook+".md")
		for _, name := range []string{s.Reason, s.Code} {
			if !strings.Contains(page, name) {
				t.Errorf("%s: page %s.md does not name %s", s.Name, s.Runbook, name)
			}
		}
	}
}
