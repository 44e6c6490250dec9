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

// dashboard fails the test for each panel whose query has no data, and draws the panels if it was asked to.
func (s *suite) dashboard(t *testing.T, since time.Time) {
	rows, err := panels.Rows()
	if err != nil {
		t.Fatal(err)
	}
	var drawn []picture.Row
	for _, row := range rows {
		d := picture.Row{Title: row.Title}
		for _, p := range row.Panels {
			found, err := s.queryRange(t.Context(), panels.Filled(p.Query, ".*", "10s"), since)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				t.Errorf("panel %s of row %s has no data, want some: %s", p.Title, row.Title, p.Query)
			}
			panel := picture.Panel{Title: p.Title, Unit: p.Unit}
			for _, series := range found {
				panel.Lines = append(panel.Lines, picture.Line{Name: picture.Legend(p.Legend, series.Metric),
					Points: pointsOf(t, series)})
			}
			d.Panels = append(d.Panels, panel)
		}
		drawn = append(drawn, d)
	}
	if os.Getenv(pictureVariable) == "" {
		return
	}
	name := filepath.Join(apiserver.Root(), "docs", "dashboard.svg")
	if err := os.WriteFile(name, picture.Draw(drawn, since, time.Now()), 0o644); err != nil { //nolint:gosec // a picture
		t.Fatal(err)
	}
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
