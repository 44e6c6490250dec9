/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/internal/metrics/reference"
)

const root = "../.."

// alerts of all sets: a name is used once.
func alerts(t *testing.T) []alert {
	t.Helper()
	var all []alert
	for _, s := range sets {
		of, err := s.alerts()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, of...)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFilesAreMadeOfTheAlerts(t *testing.T) {
	for _, s := range sets {
		files, err := s.files()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if read(t, name) != want {
				t.Errorf("%s differs from %s; make it again with go run ./hack/rules", name, s.source)
			}
		}
	}
}

// sections of a runbook, in order.
var sections = []string{"Meaning", "What a user notices", "First three commands", "Ways out",
	"When to wake an engineer"}

func TestEveryAlertHasItsPage(t *testing.T) {
	var pages []string
	for _, a := range alerts(t) {
		name := a.Alert + ".md"
		if slices.Contains(pages, name) {
			continue
		}
		pages = append(pages, name)
		text := read(t, "docs/runbooks/"+name)
		if !strings.HasPrefix(text, "# "+a.Alert+"\n") {
			t.Errorf("page %s does not begin with the name of its alert", name)
		}
		var found []string
		for line := range strings.Lines(text) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				found = append(found, strings.TrimSpace(title))
			}
		}
		if !slices.Equal(found, sections) {
			t.Errorf("page %s has the sections %q, want %q", name, found, sections)
		}
		if commands := regexp.MustCompile(`(?m)^    kubectl `).FindAllString(text, -1); len(commands) != 3 {
			t.Errorf("page %s has %d commands, want 3", name, len(commands))
		}
		if strings.Contains(text, "hawser-system") && !strings.Contains(text, "(../install.md#another-namespace-or-name)") {
			t.Errorf("page %s names hawser-system, want a link to what an installation elsewhere has to replace", name)
		}
		if !strings.Contains(read(t, "docs/runbooks/README.md"), "("+name+")") {
			t.Errorf("the list of the runbooks has no link to %s, want one", name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "docs", "runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "README.md" && !slices.Contains(pages, e.Name()) {
			t.Errorf("page %s has no alert, want one of that name", e.Name())
		}
	}
}

// TestThePodsThatARunbookSelectsExist: a selector of the first commands that matches no manifest would find nothing.
func TestThePodsThatARunbookSelectsExist(t *testing.T) {
	var programs []labels.Set
	for _, file := range []string{"manager/manager.yaml", "agent/agent.yaml", "operator/operator.yaml",
		"kube-state-metrics/deployment.yaml", "observer/observer.yaml"} {
		var workload struct {
			Spec struct {
				Template struct{ Metadata struct{ Labels labels.Set } }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, "config/"+file)), &workload); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, workload.Spec.Template.Metadata.Labels)
	}
	command := regexp.MustCompile(`(?m)^    kubectl .*pods .*-l (\S+)`)
	for _, a := range alerts(t) {
		for _, found := range command.FindAllStringSubmatch(read(t, "docs/runbooks/"+a.Alert+".md"), -1) {
			selector, err := labels.Parse(found[1])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(programs, func(of labels.Set) bool { return selector.Matches(of) }) {
				t.Errorf("page %s.md selects pods by %s, which no program of config/ has", a.Alert, selector)
			}
		}
	}
}

// promtest is what promtool's tests contain.
type promtest struct {
	Tests []struct {
		Alerts []struct {
			Name string `json:"alertname"`
			Want []struct {
				Labels map[string]string `json:"exp_labels"`
			} `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

func TestEveryAlertIsTestedToFireToStayQuietAndToRecover(t *testing.T) {
	var all promtest
	for _, s := range sets {
		var file promtest
		if err := yaml.Unmarshal([]byte(read(t, strings.TrimSuffix(s.plain, ".yaml")+"_test.yaml")), &file); err != nil {
			t.Fatal(err)
		}
		all.Tests = append(all.Tests, file.Tests...)
	}
	tested := map[string]bool{}
	for _, test := range all.Tests {
		if len(test.Alerts) != 3 {
			continue
		}
		quiet, fires, recovers := test.Alerts[0], test.Alerts[1], test.Alerts[2]
		if len(quiet.Want) == 0 && len(fires.Want) == 1 && len(recovers.Want) == 0 &&
			quiet.Name == fires.Name && fires.Name == recovers.Name {
			tested[fires.Name+" "+fires.Want[0].Labels["severity"]] = true
		}
	}
	for _, a := range alerts(t) {
		if !tested[a.Alert+" "+a.Severity] {
			t.Errorf("alert %s of severity %s has no test in which it is quiet, fires and recovers", a.Alert, a.Severity)
		}
	}
}

// namespaced labels are of objects in a namespace.
func TestAlertsWithoutANamespaceHaveANameForEachSeverity(t *testing.T) {
	severity := map[string]string{}
	for _, a := range alerts(t) {
		if !strings.Contains(a.Expr, "namespace") && severity[a.Alert] != "" && severity[a.Alert] != a.Severity {
			t.Errorf("alert %s has the severities %s and %s and no label namespace: a critical one mutes all others",
				a.Alert, severity[a.Alert], a.Severity)
		}
		severity[a.Alert] = a.Severity
	}
}

var (
	name     = regexp.MustCompile(`\b(hawser|attachdetach|storage|csi|leader|rest)_[a-z_]+`)
	instance = regexp.MustCompile(`by \([^)]*\binstance\b[^)]*\)`)
	suffix   = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// foreign metrics are those of controller-runtime and client-go, and those of kube-state-metrics by our file.
func foreign(t *testing.T) []string {
	t.Helper()
	known := []string{"leader_election_master_status", "rest_client_requests_total"}
	// The agents have these by volume.
	known = append(known, "hawser_volume_stats_available_bytes", "hawser_volume_stats_capacity_bytes",
		"hawser_volume_stats_inodes", "hawser_volume_stats_inodes_free")
	var file struct {
		Spec struct {
			Resources []struct {
				Prefix  string `json:"metricNamePrefix"`
				Metrics []struct {
					Name string `json:"name"`
				} `json:"metrics"`
			} `json:"resources"`
		} `json:"spec"`
	}
	err := yaml.Unmarshal([]byte(read(t, "config/kube-state-metrics/custom-resource-state.yaml")), &file)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Spec.Resources {
		for _, m := range r.Metrics {
			known = append(known, r.Prefix+"_"+m.Name)
		}
	}
	return known
}

func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	known := foreign(t)
	for _, list := range reference.Programs {
		all, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			known = append(known, m.Name)
		}
	}
	for _, a := range alerts(t) {
		for _, n := range name.FindAllString(a.Expr, -1) {
			if !slices.Contains(known, n) && !slices.Contains(known, suffix.ReplaceAllString(n, "")) {
				t.Errorf("alert %s is on %s, which no program has", a.Alert, n)
			}
		}
		if a.Alert != "HawserRequestsRefused" && instance.MatchString(a.Expr) {
			t.Errorf("alert %s depends on instance, which changes at each restart", a.Alert)
		}
	}
}

func TestAlertsThatLackAPartAreRefused(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no summary", "- {alert: A, expr: x, severity: warning}", `alert "A": name, expr and summary are needed`},
		{"a severity that does not exist", "- {alert: A, expr: x, severity: page, summary: s}",
			`alert A: severity "page", must be warning or critical`},
		{"a field that does not exist", "- {alert: A, expr: x, severity: warning, summary: s, fro: 5m}", "unknown field"},
		{"the same twice", "- &a {alert: A, expr: x, severity: warning, summary: s}\n- *a",
			"alert A: there are two of severity warning"},
	} {
		if _, err := parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("alerts with %s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}
