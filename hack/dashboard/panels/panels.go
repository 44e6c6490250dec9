/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package panels has the panels of the Grafana dashboard.
package panels

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed panels.yaml
var source []byte

// File of the dashboard, from the root of the repository.
const File = "config/grafana/hawser.json"

// Panel shows one query.
type Panel struct {
	Title  string `json:"title"`
	Query  string `json:"query"`
	Legend string `json:"legend"`
	Unit   string `json:"unit,omitempty"`
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
	"intent":    `label_values(hawser_intent_ready{namespace=~"$namespace"}, intent)`,
}

// Filled is a query with a value for each variable and for the window of rates.
func Filled(query, value, window string) string {
	query = strings.ReplaceAll(query, "$__rate_interval", window)
	for name := range Variables {
		query = strings.ReplaceAll(query, "$"+name, value)
	}
	return query
}

type object = map[string]any

// Size of a panel; a row has 24 columns.
const width, height, columns = 8, 7, 24

// Dashboard renders Grafana's JSON.
func Dashboard() ([]byte, error) {
	rows, err := Rows()
	if err != nil {
		return nil, err
	}
	var all, variables []object
	id, y := 0, 0
	add := func(panel object, x, w, h int) {
		id++
		panel["id"], panel["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		all = append(all, panel)
	}
	for _, row := range rows {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, columns, 1)
		y++
		for i, p := range row.Panels {
			x := i * width % columns
			if i > 0 && x == 0 {
				y += height
			}
			add(p.render(), x, width, height)
		}
		y += height
		for _, name := range row.Variables {
			variables = append(variables, variable(name))
		}
	}
	variables = append([]object{{"name": "datasource", "type": "datasource", "query": "prometheus"}}, variables...)
	text, err := json.MarshalIndent(object{
		"uid": "hawser", "title": "Hawser", "tags": []string{"hawser", "storage"}, "schemaVersion": 39, "editable": true,
		"refresh": "30s", "time": object{"from": "now-3h", "to": "now"}, "templating": object{"list": variables},
		"panels": all,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("rendering the dashboard: %w", err)
	}
	return append(text, '\n'), nil
}

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

func (p Panel) render() object {
	unit := p.Unit
	if unit == "" {
		unit = "short"
	}
	return object{
		"type": "timeseries", "title": p.Title, "datasource": datasource,
		"fieldConfig": object{"defaults": object{"unit": unit, "min": 0}, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}},
		"targets": []object{
			{"refId": "A", "datasource": datasource, "expr": p.Query, "legendFormat": p.Legend},
		},
	}
}

func variable(name string) object {
	return object{
		"name": name, "type": "query", "datasource": datasource, "refresh": 2, "includeAll": true, "multi": true,
		"allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		"query": object{"query": Variables[name], "refId": name}, "definition": Variables[name],
	}
}
