/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

func TestThePictureIsWellFormedAndHasEveryPanel(t *testing.T) {
	from := time.Now()
	points := func(values ...float64) (all []Point) {
		for i, v := range values {
			all = append(all, Point{At: from.Add(time.Duration(i) * time.Second), Value: v})
		}
		return all
	}
	rows := []panels.Row{{Title: "Cluster & nodes", Panels: []panels.Panel{
		{Title: "Waiting", Kind: panels.Stat, Unit: panels.Count},
		{Title: "Gone", Kind: panels.Stat, Unit: panels.Count},
		{Title: "Who waits", Kind: panels.Table, Unit: panels.Seconds, Columns: []string{"node"}, Value: "Since"},
		{Title: "Conditions", Kind: panels.StateTimeline, Unit: panels.InState},
		{Title: "Ages", Kind: panels.Lines, Unit: panels.Seconds},
		{Title: "Detaches", Kind: panels.Bars, Unit: panels.Count},
		{Title: "Nothing", Kind: panels.Lines, Unit: panels.Count, Empty: "all is well"},
	}}}
	answers := map[string][]Series{
		"Waiting":    {{Points: points(3)}},
		"Who waits":  {{Labels: map[string]string{"node": "n<1"}, Points: points(150)}},
		"Conditions": {{Name: "Ready", Points: points(1, 1, math.NaN(), 0)}},
		"Ages":       {{Name: "a<b", Points: points(0, 5, math.NaN(), 9)}},
		"Detaches":   {{Name: "released", Points: points(1, 2)}, {Name: "forced", Points: points(0, 1)}},
	}
	svg := Draw(rows, func(p *panels.Panel) []Series { return answers[p.Title] }, from, from.Add(10*time.Second))
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the picture: %v, want XML:\n%s", err, svg)
		}
	}
	for _, want := range []string{"Cluster &amp; nodes", ">3<", "No data", "n&lt;1", "2.5 min", "Ready", "Unknown",
		"a&lt;b", "10 s", "released", "all is well"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("picture without %q, want it:\n%s", want, svg)
		}
	}
}

func TestAStateIsDrawnAsLongAsItLasts(t *testing.T) {
	from := time.Unix(0, 0)
	var points []Point
	for i, v := range []float64{0, 0, 2, 2, 2} {
		points = append(points, Point{At: from.Add(time.Duration(i) * Step), Value: v})
	}
	points[4].At = points[4].At.Add(2 * Step) // a gap before the last
	var got []float64
	for _, r := range (&canvas{step: Step}).runs(points) {
		got = append(got, r[0].Value, r[1].At.Sub(r[0].At).Seconds())
	}
	if want := []float64{0, 3, 2, 3, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("states and their seconds: %v, want %v", got, want)
	}
}

func TestALegendHasTheLabelsOfItsSeries(t *testing.T) {
	got := Legend("{{node}} {{driver}}", map[string]string{"node": "n1", "driver": "disk"})
	if got != "n1 disk" {
		t.Errorf("legend: %q, want n1 disk", got)
	}
}
