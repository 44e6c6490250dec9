/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package panels has the panels of the Grafana dashboard.
package panels

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed panels.yaml
var source []byte

// File of the dashboard, from the root of the repository.
const File = "config/grafana/hawser.json"

// Kind of a panel: a type of Grafana, except for Bars.
type Kind string

// Kinds of panels.
const (
	// Stat shows the value of now.
	Stat Kind = "stat"
	// Table has a row for each series of now.
	Table Kind = "table"
	// StateTimeline shows over time which state each series is in.
	StateTimeline Kind = "state-timeline"
	// Lines and Bars show values over time. Bars are for counts of what happened in an interval.
	Lines Kind = "timeseries"
	Bars  Kind = "bars"
)

// Units of panels.
const (
	Count   = "count"
	Seconds = "s"
	Share   = "percentunit"
	InState = "state"
)

// States of the unit InState.
var States = []struct{ Text, Colour string }{{"False", "red"}, {"True", "green"}, {"Unknown", "orange"}}

// Query of a panel. The legend names its series.
type Query struct {
	Expr   string `json:"expr"`
	Legend string `json:"legend,omitempty"`
}

// Threshold from which on a value has a colour, and what that means.
type Threshold struct {
	From   float64 `json:"from"`
	Colour string  `json:"colour"`
	Means  string  `json:"means"`
}

// Panel shows the answers to its queries.
type Panel struct {
	Title      string      `json:"title"`
	Kind       Kind        `json:"kind"`
	Unit       string      `json:"unit"`
	About      string      `json:"about"`
	Queries    []Query     `json:"queries"`
	Thresholds []Threshold `json:"thresholds,omitempty"`
	// Empty is shown where no answer is good news.
	Empty string `json:"empty,omitempty"`
	// Columns of a table are labels; its last column, Value, has the value.
	Columns []string `json:"columns,omitempty"`
	Value   string   `json:"value,omitempty"`
	// Width in columns of the dashboard, if it is not that of the kind.
	Width int `json:"width,omitempty"`
}

// Row of panels. Its queries use its variables.
type Row struct {
	Title     string   `json:"title"`
	Variables []string `json:"variables,omitempty"`
	Panels    []Panel  `json:"panels"`
}

// Rows of the dashboard.
func Rows() ([]Row, error) {
	var rows []Row
	if err := yaml.UnmarshalStrict(source, &rows); err != nil {
		return nil, fmt.Errorf("reading the panels: %w", err)
	}
	return rows, nil
}

// Variables have the queries for their values.
var Variables = map[string]string{
	"node":      "label_values(hawser_node_ready, node)",
	"namespace": "label_values(hawser_intent_ready, namespace)",
}

// Filled is a query with a value for each variable, and the windows of rates and of bars.
func Filled(query, value, rate, bar string) string {
	query = strings.NewReplacer("$__rate_interval", rate, "$__interval", bar).Replace(query)
	for name := range Variables {
		query = strings.ReplaceAll(query, "$"+name, value)
	}
	return query
}

// OfNow reports whether a panel shows one moment.
func (p *Panel) OfNow() bool { return p.Kind == Stat || p.Kind == Table }

// Description of a panel, with the meaning of its colours.
func (p *Panel) Description() string {
	text := p.About
	for _, t := range p.Thresholds {
		name := strings.ToUpper(t.Colour[:1]) + t.Colour[1:]
		text += fmt.Sprintf(" %s from %s: %s.", name, Text(t.From, p.Unit), t.Means)
	}
	return text
}

// Text is a value with its unit.
func Text(v float64, unit string) string {
	switch unit {
	case Seconds:
		return duration(v)
	case Share:
		return fmt.Sprintf("%.0f%%", 100*v)
	case InState:
		if i := int(v); i >= 0 && i < len(States) {
			return States[i].Text
		}
	}
	return fmt.Sprintf("%.0f", v)
}

func duration(seconds float64) string {
	switch {
	case seconds >= 2*3600:
		return decimal(seconds/3600) + " h"
	case seconds >= 120:
		return decimal(seconds/60) + " min"
	case seconds >= 1 || seconds == 0:
		return decimal(seconds) + " s"
	}
	return decimal(1000*seconds) + " ms"
}

// decimal has at most one place after the point, and none of a number from 10 on.
func decimal(v float64) string {
	places := 0
	if v < 10 {
		places = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', places, 64), ".0")
}

// Colour of a value by the thresholds of its panel, and by its state.
func (p *Panel) Colour(v float64) string {
	if i := int(v); p.Unit == InState && i >= 0 && i < len(States) {
		return States[i].Colour
	}
	colour := "green"
	for _, t := range p.Thresholds {
		if v >= t.From {
			colour = t.Colour
		}
	}
	return colour
}
