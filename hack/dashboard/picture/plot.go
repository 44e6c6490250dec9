/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package picture

import (
	"fmt"
	"math"
	"strings"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

// plot is what lines and bars share: axes, thresholds and a legend.
type plot struct {
	*canvas
	box
	highest float64
}

func (c *canvas) plot(b box, p *panels.Panel, series []Series) {
	const axis, values = 16, 48
	legend := min(len(series), legendLines) * (font + 2)
	inside := plot{canvas: c, highest: ceiling(highest(p, series), p.Unit),
		box: box{x: b.x + values, y: b.y + 4, w: b.w - values, h: b.h - legend - axis - 8}}
	inside.axes(b.x, p)
	if p.Kind == panels.Bars {
		inside.bars(series)
	} else {
		for i, s := range series {
			inside.line(s, lineColours[i%len(lineColours)])
		}
	}
	c.times(inside.x, inside.y+inside.h+axis-3, inside.w)
	c.legend(box{x: b.x, y: b.y + b.h - legend, w: b.w, h: legend}, series)
}

// legendLines that a legend has, in one column, or in two if it needs them.
const legendLines = 3

func (c *canvas) legend(b box, series []Series) {
	columns := min((len(series)+legendLines-1)/legendLines, 2)
	shown := min(len(series), columns*legendLines)
	for i := range shown {
		name := series[i].Name
		if more := len(series) - shown; more > 0 && i == shown-1 {
			name = fmt.Sprintf("and %d more", more+1)
		}
		width := b.w / columns
		x, y := b.x+i/legendLines*width, b.y+(i%legendLines+1)*(font+2)
		c.rect(box{x: x, y: y - 9, w: 10, h: 10}, lineColours[i%len(lineColours)], "none")
		c.text(x+15, y, font-1, "normal", "#24292e", cut(name, width-15, font-1))
	}
}

// highest value; bars of one time are stacked.
func highest(p *panels.Panel, series []Series) float64 {
	top, sums := 0.0, map[int64]float64{}
	for _, s := range series {
		for _, point := range s.Points {
			if math.IsNaN(point.Value) || math.IsInf(point.Value, 0) {
				continue
			}
			v := point.Value
			if p.Kind == panels.Bars {
				sums[point.At.Unix()] += v
				v = sums[point.At.Unix()]
			}
			top = max(top, v)
		}
	}
	return top
}

// ceiling of an axis: a round number above the highest value.
func ceiling(v float64, unit string) float64 {
	if unit == panels.Share {
		return 1
	}
	if v <= 0 {
		return 1
	}
	if unit == panels.Seconds && v > 10 {
		for _, top := range []float64{20, 30, 60, 120, 240, 600, 1200, 1800, 3600} {
			if top >= v {
				return top
			}
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4, 6, 10} {
		if top := step * power; top >= v && (unit != panels.Count || top >= 2) {
			return top
		}
	}
	return 2 * v
}

func (p plot) at(v float64) float64 { return float64(p.y) + float64(p.h)*(1-v/p.highest) }

func (p plot) axes(left int, panel *panels.Panel) {
	for _, share := range []float64{0, 0.5, 1} {
		v := p.highest * share
		y := int(p.at(v))
		fmt.Fprintf(&p.Buffer, `<path d="M%d %dH%d" stroke="#e4e5e6"/>`+"\n", p.x, y, p.x+p.w)
		p.text(left, y+4, font-2, "normal", "#6e6e6e", panels.Text(v, panel.Unit))
	}
	for _, t := range panel.Thresholds {
		if t.From <= p.highest {
			fmt.Fprintf(&p.Buffer, `<path d="M%d %.1fH%d" stroke="%s" stroke-dasharray="6 4"/>`+"\n",
				p.x, p.at(t.From), p.x+p.w, colours[t.Colour])
		}
	}
}

// line is broken where the series has no value.
func (p plot) line(s Series, colour string) {
	var path strings.Builder
	var last *Point
	for i, point := range s.Points {
		if math.IsNaN(point.Value) || math.IsInf(point.Value, 0) {
			continue
		}
		command := "L"
		if last == nil || p.apart(*last, point) {
			command = "M"
		}
		last = &s.Points[i]
		fmt.Fprintf(&path, "%s%.1f %.1f", command, p.canvas.at(point.At, p.x, p.w), p.at(point.Value))
	}
	fmt.Fprintf(&p.Buffer, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
}

// bars of one time are stacked.
func (p plot) bars(series []Series) {
	sums := map[int64]float64{}
	width := max(float64(p.w)*p.step.Seconds()/max(p.to.Sub(p.from).Seconds(), 1)-2, 2)
	for i, s := range series {
		for _, point := range s.Points {
			if math.IsNaN(point.Value) || point.Value <= 0 {
				continue
			}
			below := sums[point.At.Unix()]
			sums[point.At.Unix()] = below + point.Value
			top := p.at(below + point.Value)
			// A bar is about the time before its point.
			right := p.canvas.at(point.At, p.x, p.w)
			left := max(right-width, float64(p.x))
			fmt.Fprintf(&p.Buffer, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
				left, top, right-left, p.at(below)-top, lineColours[i%len(lineColours)])
		}
	}
}
