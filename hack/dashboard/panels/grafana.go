/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package panels

import (
	"encoding/json"
	"fmt"
	"strconv"
)

type object = map[string]any

// Dashboard renders Grafana's JSON.
func Dashboard() ([]byte, error) {
	rows, err := Rows()
	if err != nil {
		return nil, err
	}
	all := []object{}
	variables := []object{{"name": "datasource", "type": "datasource", "query": "prometheus"}}
	add := func(panel object, at Place) {
		panel["id"], panel["gridPos"] = len(all)+1, object{"x": at.X, "y": at.Y, "w": at.W, "h": at.H}
		all = append(all, panel)
	}
	placed, _ := Layout(rows)
	for _, row := range placed {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, row.Place)
		for _, p := range row.Panels {
			add(p.render(), p.Place)
		}
		for _, name := range row.Variables {
			variables = append(variables, variable(name))
		}
	}
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

func (p *Panel) render() object {
	defaults := p.defaults()
	panel := object{
		"title": p.Title, "description": p.Description(), "datasource": datasource, "targets": p.targets(),
		"type": string(p.Kind), "fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	switch p.Kind {
	case Stat:
		panel["options"] = object{"colorMode": "background", "graphMode": "none", "textMode": "value",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	case Table:
		p.renderTable(panel)
	case StateTimeline:
		panel["options"] = object{"showValue": "never", "mergeValues": true, "rowHeight": 0.8,
			"legend": object{"showLegend": false}}
	case Lines, Bars:
		custom := object{"drawStyle": "line", "thresholdsStyle": object{"mode": "dashed"}}
		if p.Kind == Bars {
			panel["type"], panel["interval"] = string(Lines), "5m" // a bar for at least five minutes
			custom = object{"drawStyle": "bars", "fillOpacity": 80, "stacking": object{"mode": "normal"}}
		}
		defaults["custom"], defaults["min"], defaults["color"] = custom, 0, object{"mode": "palette-classic"}
		panel["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}}
	}
	return panel
}

// defaults of the fields: unit, decimals, and colours.
func (p *Panel) defaults() object {
	steps := []object{{"value": nil, "color": "green"}}
	for _, t := range p.Thresholds {
		steps = append(steps, object{"value": t.From, "color": t.Colour})
	}
	defaults := object{"unit": p.Unit, "color": object{"mode": "thresholds"},
		"thresholds": object{"mode": "absolute", "steps": steps}}
	switch p.Unit {
	case Count:
		defaults["unit"], defaults["decimals"] = "none", 0
	case InState:
		values := object{}
		for i, s := range States {
			values[strconv.Itoa(i)] = object{"text": s.Text, "color": s.Colour, "index": i}
		}
		defaults["unit"], defaults["mappings"] = "none", []object{{"type": "value", "options": values}}
	}
	if p.Empty != "" {
		defaults["noValue"] = p.Empty
	}
	return defaults
}

func (p *Panel) targets() []object {
	var targets []object
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": datasource, "expr": q.Expr}
		if p.OfNow() {
			target["instant"], target["range"] = true, false
		}
		if p.Kind == Table {
			target["format"] = "table"
		} else {
			target["legendFormat"] = q.Legend
		}
		targets = append(targets, target)
	}
	return targets
}

// renderTable names and orders the columns, and colours the value alone.
func (p *Panel) renderTable(panel object) {
	order := object{}
	for i, label := range append(p.Columns, "Value") {
		order[label] = i
	}
	panel["transformations"] = []object{{"id": "organize", "options": object{
		"excludeByName": object{"Time": true}, "indexByName": order, "renameByName": object{"Value": p.Value}}}}
	panel["options"] = object{"sortBy": []object{{"displayName": p.Value, "desc": true}}}
	config, _ := panel["fieldConfig"].(object)
	config["overrides"] = []object{{"matcher": object{"id": "byName", "options": p.Value}, "properties": []object{
		{"id": "custom.cellOptions", "value": object{"type": "color-background"}}}}}
}

func variable(name string) object {
	return object{
		"name": name, "type": "query", "datasource": datasource, "refresh": 2, "includeAll": true, "multi": true,
		"allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		"query": object{"query": Variables[name], "refId": name}, "definition": Variables[name],
	}
}
