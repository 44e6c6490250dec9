/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package situations reads the table of broken situations in docs/troubleshoot.md. The test of alerts makes each of
// them and compares what users see with its row.
package situations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hawser-io/hawser/test/apiserver"
)

// Situation is one row.
type Situation struct {
	// Name is the text before the colon.
	Name string
	// Ready and Reason are what kubectl get vai shows.
	Ready, Reason string
	// Alerts that fire, by name.
	Alerts []string
	// Code and Finding are the cause that kubectl hawser why names.
	Code, Finding string
	// Runbook is the page that leads on, by the name of its alert.
	Runbook string
}

// heading of the table's section, and its columns.
const (
	heading = "\n## Ten situations\n"
	columns = "| Situation | `kubectl get vai` | Alert | `kubectl hawser why` | Runbook |\n"
)

var (
	quoted  = regexp.MustCompile("`([A-Za-z]+)`")
	finding = regexp.MustCompile(`^\[(HWS[0-9]{3})\]\(reference/findings\.md#hws[0-9]{3}\) ([A-Za-z]+)$`)
	runbook = regexp.MustCompile(`^\[page\]\(runbooks/([A-Za-z]+)\.md\)$`)
)

// Read returns the rows.
func Read() ([]Situation, error) {
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", "troubleshoot.md"))
	if err != nil {
		return nil, fmt.Errorf("reading the situations: %w", err)
	}
	_, section, found := strings.Cut(string(text), heading)
	_, table, hasTable := strings.Cut(section, columns)
	if !found || !hasTable {
		return nil, errors.New("docs/troubleshoot.md has no table of situations")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var all []Situation
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if i == 0 {
			continue // the line below the columns
		}
		one, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("reading the situations: row %d: %w", i, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func parse(line string) (Situation, error) {
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	if len(cells) != strings.Count(columns, " | ")+1 {
		return Situation{}, fmt.Errorf("%q has %d cells", line, len(cells))
	}
	s := Situation{}
	s.Name, _, _ = strings.Cut(cells[0], ":")
	shown := names(cells[1])
	if len(shown) != 2 {
		return s, fmt.Errorf("%s: %q has %d quoted words, want READY and REASON", s.Name, cells[1], len(shown))
	}
	s.Ready, s.Reason, s.Alerts = shown[0], shown[1], names(cells[2])
	why, page := finding.FindStringSubmatch(cells[3]), runbook.FindStringSubmatch(cells[4])
	if why == nil || page == nil {
		return s, fmt.Errorf("%s: %q and %q, want a finding and a page", s.Name, cells[3], cells[4])
	}
	s.Code, s.Finding, s.Runbook = why[1], why[2], page[1]
	return s, nil
}

// names are the quoted words of a cell.
func names(cell string) []string {
	var all []string
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, match[1])
	}
	return all
}
