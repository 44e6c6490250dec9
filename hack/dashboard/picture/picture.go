/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package picture draws panels with lines as SVG, for the documentation. It takes the place of a Grafana.
package picture

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Point of a line.
type Point struct {
	At    time.Time
	Value float64
}

// Line is one series.
type Line struct {
	Name   string
	Points []Point
}

// Panel has the lines of one query.
type Panel struct {
	Title, Unit string
	Lines       []Line
}

// Row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Legend fills in the labels of a series.
func Legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return strings.TrimSpace(format)
}

// Sizes in pixels.
const (
	columns     = 3
	panelWidth  = 400
	panelHeight = 200
	plotHeight  = 96
	margin      = 10
	rowTitle    = 34
	// mostNames of lines in the legend of a panel.
	mostNames = 4
)

var colours = []string{"#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#b5a642", "#1f9e9e", "#6e6e6e"}

// canvas collects the elements.
type canvas struct {
	bytes.Buffer
	from, to time.Time
}

// Draw the rows with the values between two times.
func Draw(rows []Row, from, to time.Time) []byte {
	c := &canvas{from: from, to: to}
	y := margin
	for _, row := range rows {
		c.text(margin, y+22, 16, "bold", row.Title)
		y += rowTitle
		for i, p := range row.Panels {
			if i > 0 && i%columns == 0 {
				y += panelHeight + margin
			}
			c.panel(margin+i%columns*(panelWidth+margin), y, p)
		}
		y += panelHeight + margin
	}
	width := columns*(panelWidth+margin) + margin
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="sans-serif">`+"\n"+`<rect width="100%%" height="100%%" fill="#f4f5f5"/>`+"\n", width, y, width, y)
	return slices.Concat([]byte(head), c.Bytes(), []byte("</svg>\n"))
}

func (c *canvas) text(x, y, size int, weight, text string) {
	fmt.Fprintf(&c.Buffer, `<text x="%d" y="%d" font-size="%d" font-weight="%s" fill="#24292e">`, x, y, size, weight)
	_ = xml.EscapeText(c, []byte(text)) // a buffer takes everything
	c.WriteString("</text>\n")
}

func (c *canvas) panel(x, y int, p Panel) {
	fmt.Fprintf(&c.Buffer, `<rect x="%d" y="%d" width="%d" height="%d" fill="#ffffff" stroke="#d8d9da"/>`+"\n",
		x, y, panelWidth, panelHeight)
	c.text(x+8, y+18, 12, "bold", p.Title)
	highest := 0.0
	for _, l := range p.Lines {
		for _, point := range l.Points {
			if !math.IsNaN(point.Value) && !math.IsInf(point.Value, 0) {
				highest = max(highest, point.Value)
			}
		}
	}
	highest = cmp.Or(highest, 1)
	left, top := x+48, y+28
	c.text(x+6, top+8, 9, "normal", Value(highest, p.Unit))
	c.text(x+6, top+plotHeight, 9, "normal", Value(0, p.Unit))
	fmt.Fprintf(&c.Buffer, `<path d="M%d %dH%dM%d %dH%d" stroke="#e4e5e6"/>`+"\n",
		left, top, x+panelWidth-8, left, top+plotHeight, x+panelWidth-8)
	slices.SortFunc(p.Lines, func(a, b Line) int { return strings.Compare(a.Name, b.Name) })
	for i, l := range p.Lines {
		c.line(left, top, panelWidth-56, l, highest, colours[i%len(colours)])
	}
	c.legend(x+8, top+plotHeight+16, p.Lines)
}

// line is broken where the series has no value for a while.
func (c *canvas) line(left, top, width int, l Line, highest float64, colour string) {
	var path strings.Builder
	last := time.Time{}
	for _, point := range l.Points {
		if math.IsNaN(point.Value) || math.IsInf(point.Value, 0) {
			continue
		}
		command := "L"
		if last.IsZero() || point.At.Sub(last) > 5*time.Second {
			command = "M"
		}
		last = point.At
		x := float64(left) + float64(width)*point.At.Sub(c.from).Seconds()/max(c.to.Sub(c.from).Seconds(), 1)
		y := float64(top) + plotHeight*(1-point.Value/highest)
		fmt.Fprintf(&path, "%s%.0f %.1f", command, x, y)
	}
	fmt.Fprintf(&c.Buffer, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
}

func (c *canvas) legend(x, y int, lines []Line) {
	for i, l := range lines[:min(len(lines), mostNames)] {
		fmt.Fprintf(&c.Buffer, `<rect x="%d" y="%d" width="8" height="8" fill="%s"/>`+"\n",
			x, y+i*13-8, colours[i%len(colours)])
		name := l.Name
		if len(lines) > mostNames && i == mostNames-1 {
			name += fmt.Sprintf(", and %d more", len(lines)-mostNames)
		}
		c.text(x+13, y+i*13, 10, "normal", name)
	}
}

// Value with its unit.
func Value(v float64, unit string) string {
	switch unit {
	case "s":
		return fmt.Sprintf("%.3g s", v)
	case "bytes":
		return fmt.Sprintf("%.3g MiB", v/(1<<20))
	case "percentunit":
		return fmt.Sprintf("%.3g%%", 100*v)
	}
	return fmt.Sprintf("%.3g", v)
}
