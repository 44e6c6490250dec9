/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// rules makes a PrometheusRule and a plain rules file of hawser.yaml, and of observer.yaml, their only sources.
//
//	go run ./hack/rules
package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed hawser.yaml observer.yaml
var sources embed.FS

const (
	runbooks = "https://github.com/hawser-io/hawser/blob/main/docs/runbooks/"
	note     = "# Made by go run ./hack/rules of hack/rules/%s. Do not edit.\n"
)

// sets of alerts that are installed apart from each other.
var sets = []set{
	{"hawser.yaml", "hawser", "hawser-system", "config/prometheus/hawser.yaml", "config/monitoring/rules.yaml"},
	{"observer.yaml", "hawser-observer", "hawser-observer", "config/prometheus/hawser-observer.yaml",
		"config/observer-monitoring/rules.yaml"},
}

type set struct {
	source, name, namespace string
	// plain and operated are the files that are made: for Prometheus, and for its operator.
	plain, operated string
}

// alert of the source.
type alert struct {
	Alert    string `json:"alert"`
	Expr     string `json:"expr"`
	For      string `json:"for"`
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
}

type (
	rule struct {
		Alert       string            `json:"alert"`
		Expr        string            `json:"expr"`
		For         string            `json:"for,omitempty"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
	group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	groups struct {
		Groups []group `json:"groups"`
	}
	metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	}
	// prometheusRule is the kind of the Prometheus operator.
	prometheusRule struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
		Spec       groups   `json:"spec"`
	}
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	for _, s := range sets {
		files, err := s.files()
		if err != nil {
			return err
		}
		for name, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)) //nolint:gosec // manifests
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alerts of the set.
func (s set) alerts() ([]alert, error) {
	text, err := sources.ReadFile(s.source)
	if err != nil {
		return nil, fmt.Errorf("reading the alerts: %w", err)
	}
	all, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.source, err)
	}
	return all, nil
}

// files by name.
func (s set) files() (map[string]string, error) {
	alerts, err := s.alerts()
	if err != nil {
		return nil, err
	}
	all := groups{[]group{{Name: s.name}}}
	for _, a := range alerts {
		all.Groups[0].Rules = append(all.Groups[0].Rules, rule{
			Alert: a.Alert, Expr: strings.TrimSpace(a.Expr), For: a.For,
			Labels:      map[string]string{"severity": a.Severity},
			Annotations: map[string]string{"summary": a.Summary, "runbook_url": runbooks + a.Alert + ".md"},
		})
	}
	files := map[string]string{}
	for name, object := range map[string]any{
		s.plain: all,
		s.operated: prometheusRule{"monitoring.coreos.com/v1", "PrometheusRule",
			metadata{s.name, s.namespace, map[string]string{"app.kubernetes.io/name": "hawser"}}, all},
	} {
		made, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		files[name] = fmt.Sprintf(note, s.source) + string(made)
	}
	return files, nil
}

// parse refuses an alert that lacks a part, and two that Alertmanager would take for one.
func parse(text []byte) ([]alert, error) {
	var alerts []alert
	if err := yaml.UnmarshalStrict(text, &alerts); err != nil {
		return nil, fmt.Errorf("reading the alerts: %w", err)
	}
	severities := map[string]bool{}
	for _, a := range alerts {
		key := a.Alert + " " + a.Severity
		switch {
		case a.Alert == "" || a.Expr == "" || a.Summary == "":
			return nil, fmt.Errorf("alert %q: name, expr and summary are needed", cmp.Or(a.Alert, a.Expr))
		case a.Severity != "warning" && a.Severity != "critical":
			return nil, fmt.Errorf("alert %s: severity %q, must be warning or critical", a.Alert, a.Severity)
		case severities[key]:
			return nil, fmt.Errorf("alert %s: there are two of severity %s", a.Alert, a.Severity)
		}
		severities[key] = true
	}
	return alerts, nil
}
