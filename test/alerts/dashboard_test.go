/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
	"github.com/hawser-io/hawser/hack/dashboard/picture"
	"github.com/hawser-io/hawser/test/apiserver"
)

// pictureVariable asks for docs/dashboard.svg.
const pictureVariable = "HAWSER_DASHBOARD_PICTURE"

// dashboard fails the test for each query of a panel that never had data since a time, and draws the panels as they
// were at another one if it was asked to.
func (s *suite) dashboard(t *testing.T, since, at time.Time) {
	rows, err := panels.Rows()
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[*panels.Panel][]picture.Series{}
	for i := range rows {
		for j := range rows[i].Panels {
			p := &rows[i].Panels[j]
			from := since
			if p.OfNow() {
				from = at
			}
			for _, q := range p.Queries {
				if len(s.series(t, p, q, since, time.Now())) == 0 {
					t.Errorf("panel %s has no data of %s, want some", p.Title, q.Expr)
				}
				drawn[p] = append(drawn[p], s.series(t, p, q, from, at)...)
			}
		}
	}
	if os.Getenv(pictureVariable) == "" {
		return
	}
	svg := picture.Draw(rows, func(p *panels.Panel) []picture.Series { return drawn[p] }, since, at)
	name := filepath.Join(apiserver.Root(), "docs", "dashboard.svg")
	if err := os.WriteFile(name, svg, 0o644); err != nil { //nolint:gosec // a picture
		t.Fatal(err)
	}
}

// series are the answers to a query of a panel.
func (s *suite) series(t *testing.T, p *panels.Panel, q panels.Query, from, to time.Time) []picture.Series {
	t.Helper()
	query := panels.Filled(q.Expr, ".*", "1m", picture.BarStep.String())
	found, err := s.queryRange(t.Context(), query, from, to, picture.StepOf(p))
	if err != nil {
		t.Fatal(err)
	}
	var all []picture.Series
	for _, answer := range found {
		all = append(all, picture.Series{Name: picture.Legend(q.Legend, answer.Metric), Labels: answer.Metric,
			Points: pointsOf(t, answer)})
	}
	return all
}

// pointsOf a series: Prometheus writes values as text.
func pointsOf(t *testing.T, series sample) []picture.Point {
	t.Helper()
	var points []picture.Point
	for _, v := range series.Values {
		seconds, isNumber := v[0].(float64)
		text, isText := v[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if !isNumber || !isText || err != nil {
			t.Fatalf("value of %v: %v, want a time and a number", series.Metric, v)
		}
		points = append(points, picture.Point{At: time.UnixMilli(int64(seconds * 1000)), Value: value})
	}
	return points
}
