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
	"strings"
	"testing"
	"time"
)

func TestThePictureIsWellFormedAndHasEveryPanel(t *testing.T) {
	from := time.Now()
	points := func(values ...float64) (all []Point) {
		for i, v := range values {
			all = append(all, Point{At: from.Add(time.Duration(i) * time.Second), Value: v})
		}
		return all
	}
	svg := Draw([]Row{{Title: "Cluster & nodes", Panels: []Panel{
		{Title: "Ages", Unit: "s", Lines: []Line{{Name: "a<b", Points: points(0, 5, math.NaN(), 10)}}},
		{Title: "Nothing"}, {Title: "Third"}, {Title: "Fourth", Unit: "bytes"},
	}}}, from, from.Add(10*time.Second))
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the picture: %v, want XML:\n%s", err, svg)
		}
	}
	for _, want := range []string{"Cluster &amp; nodes", "Ages", "a&lt;b", "Nothing", "Third", "Fourth", "10 s", "0 MiB"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("picture without %q, want it:\n%s", want, svg)
		}
	}
}

func TestALegendHasTheLabelsOfItsSeries(t *testing.T) {
	got := Legend("{{node}} {{driver}}", map[string]string{"node": "n1", "driver": "disk"})
	if got != "n1 disk" {
		t.Errorf("legend: %q, want n1 disk", got)
	}
}
