/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package picture draws the panels of the dashboard as SVG, for the documentation. It takes the place of a Grafana.
package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

// Point of a series.
type Point struct {
	At    time.Time
	Value float64
}

// Series is one answer to a query of a panel.
type Series struct {
	Name   string
	Labels map[string]string
	Points []Point
}

// last value of a series.
func (s *Series) last() float64 { return s.Points[len(s.Points)-1].Value }

// Legend fills in the labels of a series.
func Legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return strings.TrimSpace(format)
}

// Sizes in pixels. A panel has a gap around it.
const (
	columnWidth = 56
	lineHeight  = 34
	gap         = 5
	padding     = 10
	titleHeight = 26
	font        = 12
)

var colours = map[string]string{"green": "#37872d", "yellow": "#d9a400", "orange": "#e0752d", "red": "#c4162a"}

// lineColours are those of lines and bars, which have no meaning.
var lineColours = []string{"#3274d9", "#e0752d", "#37872d", "#8f3bb8", "#1f9e9e", "#c4162a", "#b5a642", "#6e6e6e",
	"#8ab8ff", "#ffb357", "#96d98d", "#ca95e5"}

// box is a place in pixels.
type box struct{ x, y, w, h int }

// canvas collects the elements.
type canvas struct {
	bytes.Buffer
	from, to time.Time
	// step between the points of the panel that is drawn.
	step time.Duration
}

// Step between the points of lines and states, and BarStep between bars.
const (
	Step    = 3 * time.Second
	BarStep = 15 * time.Second
)

// StepOf a panel.
func StepOf(p *panels.Panel) time.Duration {
	if p.Kind == panels.Bars {
		return BarStep
	}
	return Step
}

// Draw the rows of the dashboard between two times, with the series of each panel.
func Draw(rows []panels.Row, answers func(*panels.Panel) []Series, from, to time.Time) []byte {
	c := &canvas{from: from, to: to}
	placed, lines := panels.Layout(rows)
	for _, row := range placed {
		c.text(gap+2, row.Y*lineHeight+25, 15, "bold", "#24292e", row.Title)
		for _, p := range row.Panels {
			c.step = StepOf(p.Panel)
			c.panel(p, answers(p.Panel))
		}
	}
	width, height := panels.Columns*columnWidth, lines*lineHeight+gap
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="Helvetica, Arial, sans-serif">`+"\n", width, height, width, height)
	background := `<rect width="100%" height="100%" fill="#f4f5f5"/>` + "\n"
	return slices.Concat([]byte(head), []byte(background), c.Bytes(), []byte("</svg>\n"))
}

func (c *canvas) panel(p panels.Placed, series []Series) {
	b := box{x: p.X*columnWidth + gap, y: p.Y*lineHeight + gap, w: p.W*columnWidth - 2*gap, h: p.H*lineHeight - 2*gap}
	fill := "#ffffff"
	if p.Kind == panels.Stat && len(series) > 0 {
		fill = colours[p.Colour(series[0].last())]
	}
	c.rect(b, fill, "#d8d9da")
	if p.Kind == panels.Stat {
		c.stat(b, p.Panel, series)
		return
	}
	c.text(b.x+padding, b.y+18, font+1, "bold", "#24292e", p.Title)
	inside := box{x: b.x + padding, y: b.y + titleHeight, w: b.w - 2*padding, h: b.h - titleHeight - padding}
	slices.SortFunc(series, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case len(series) == 0:
		c.middle(inside, font, "#6e6e6e", p.Empty)
	case p.Kind == panels.Table:
		c.table(inside, p.Panel, series)
	case p.Kind == panels.StateTimeline:
		c.timeline(inside, p.Panel, series)
	default:
		c.plot(inside, p.Panel, series)
	}
}

func (c *canvas) stat(b box, p *panels.Panel, series []Series) {
	colour, text := "#24292e", "No data"
	if len(series) > 0 {
		colour, text = "#ffffff", panels.Text(series[0].last(), p.Unit)
	}
	c.text(b.x+padding, b.y+18, font-1, "bold", colour, p.Title)
	c.middle(box{x: b.x, y: b.y + titleHeight, w: b.w, h: b.h - titleHeight - padding}, 34, colour, text)
}

func (c *canvas) rect(b box, fill, stroke string) {
	fmt.Fprintf(&c.Buffer, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="%s"/>`+"\n",
		b.x, b.y, b.w, b.h, fill, stroke)
}

func (c *canvas) text(x, y, size int, weight, colour, text string) {
	c.anchored(x, y, size, weight, colour, "start", text)
}

func (c *canvas) middle(b box, size int, colour, text string) {
	c.anchored(b.x+b.w/2, b.y+b.h/2+size/3, size, "bold", colour, "middle", text)
}

func (c *canvas) anchored(x, y, size int, weight, colour, anchor, text string) {
	fmt.Fprintf(&c.Buffer, `<text x="%d" y="%d" font-size="%d" font-weight="%s" fill="%s" text-anchor="%s">`,
		x, y, size, weight, colour, anchor)
	_ = xml.EscapeText(c, []byte(text)) // a buffer takes everything
	c.WriteString("</text>\n")
}

// cut shortens a text to a width. A character takes some 0.56 of the size of its font.
func cut(text string, width, size int) string {
	fits := max(width*100/(size*56), 2)
	if len(text) <= fits {
		return text
	}
	return text[:fits-1] + "…"
}

// at is where a time is between two pixels.
func (c *canvas) at(t time.Time, left, width int) float64 {
	return float64(left) + float64(width)*t.Sub(c.from).Seconds()/max(c.to.Sub(c.from).Seconds(), 1)
}

// times writes the axis below a plot.
func (c *canvas) times(left, y, width int) {
	parts := 4
	if width < 300 {
		parts = 2
	}
	for i := range parts + 1 {
		t := c.from.Add(c.to.Sub(c.from) * time.Duration(i) / time.Duration(parts))
		anchor := map[int]string{0: "start", parts: "end"}[i]
		if anchor == "" {
			anchor = "middle"
		}
		c.anchored(left+width*i/parts, y, font-2, "normal", "#6e6e6e", anchor, t.UTC().Format("15:04:05"))
	}
}
