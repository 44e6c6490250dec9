/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package reference lists the metrics of the programs, as their code declares them. The tables of
// docs/reference/metrics.md are made from it.
package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/internal/agent/podstats"
	managermetrics "github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/metrics"
	"github.com/hawser-io/hawser/internal/observe"
	"github.com/hawser-io/hawser/internal/operator/rollout"
)

// Metric is one family.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// Manager lists the manager's metrics.
func Manager() ([]Metric, error) {
	never := make(chan struct{})
	collectors := managermetrics.Collectors(nil, never, clock.RealClock{})
	collectors = append(collectors, metrics.Collectors()...)
	return Of(append(collectors, policy.New(clock.RealClock{}), metrics.BuildInfo("manager"))...)
}

// Agent lists the agent's metrics.
func Agent() ([]Metric, error) {
	collectors := append(metrics.Collectors(), csi.Collectors()...)
	collectors = append(collectors, podstats.NewCollector(nil), podstats.NewPublishedCollector(nil))
	return Of(append(collectors, metrics.NewCalls(clock.RealClock{}), metrics.BuildInfo("agent"))...)
}

// Operator lists the operator's metrics.
func Operator() ([]Metric, error) { return Of(&rollout.Metrics{}, metrics.BuildInfo("operator")) }

// Observer lists the metrics of the manager with --observe.
func Observer() ([]Metric, error) { return Of(&observe.Observer{}, metrics.BuildInfo("observer")) }

// Programs have their lists of metrics by name.
var Programs = map[string]func() ([]Metric, error){"manager": Manager, "agent": Agent, "operator": Operator,
	"observer": Observer}

// Of lists what collectors describe, by name.
func Of(collectors ...prometheus.Collector) ([]Metric, error) {
	var all []Metric
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for desc := range descs {
			m, err := parse(desc)
			if err != nil {
				return nil, err
			}
			m.Type = typeOf(c)
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// description is the text of a Desc, which has no other access to its parts.
var description = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?` +
		`constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

func parse(desc *prometheus.Desc) (Metric, error) {
	parts := description.FindStringSubmatch(desc.String())
	if parts == nil {
		return Metric{}, fmt.Errorf("reading the description of a metric: %s has not the form that is known", desc)
	}
	name, err := strconv.Unquote(parts[1])
	if err != nil {
		return Metric{}, fmt.Errorf("reading the name in %s: %w", desc, err)
	}
	help, err := strconv.Unquote(parts[2])
	if err != nil {
		return Metric{}, fmt.Errorf("reading the help in %s: %w", desc, err)
	}
	m := Metric{Name: name, Help: help}
	if parts[3] != "" {
		m.Labels = strings.Split(parts[3], ",")
	}
	return m, nil
}

// typeOf: the collectors of this repository that count at each scrape have gauges only.
func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	}
	return "gauge"
}

// Table renders metrics as a table of Markdown.
func Table(all []Metric) string {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, m := range all {
		labels := make([]string, len(m.Labels))
		for i, l := range m.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(labels, ", "), m.Help)
	}
	return b.String()
}

// Page replaces the tables of a page. Each is between two comments that name it.
func Page(page string) (string, error) {
	for name, list := range Programs {
		all, err := list()
		if err != nil {
			return "", err
		}
		begin, end := "<!-- metrics of the "+name+", made by go run ./hack/metrics -->\n", "<!-- end of the "+name+" -->\n"
		before, rest, found := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return "", fmt.Errorf("the page has no table between the lines %q and %q", begin, end)
		}
		page = before + begin + "\n" + Table(all) + "\n" + end + after
	}
	return page, nil
}
