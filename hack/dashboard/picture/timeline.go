/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package picture

import (
	"fmt"
	"math"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

// timeline has a bar for each series, coloured by its state, and open where it has no value.
func (c *canvas) timeline(b box, p *panels.Panel, series []Series) {
	const axis, lowest = 16, 13
	height := min(max((b.h-2*axis)/len(series), lowest), rowHeight)
	rows := min(len(series), (b.h-2*axis)/height)
	size := min(font, height-2)
	name := 0
	for _, s := range series[:rows] {
		name = max(name, len(s.Name)*size*56/100+8)
	}
	name = min(name, b.w*6/10)
	left, width := b.x+name, b.w-name
	for i, s := range series[:rows] {
		y := b.y + i*height
		c.text(b.x, y+height/2+size/3, size, "normal", "#24292e", cut(s.Name, name-4, size))
		c.rect(box{x: left, y: y + 2, w: width, h: height - 4}, "#f4f5f5", "none")
		for _, r := range c.runs(s.Points) {
			from, to := c.at(r[0].At, left, width), c.at(r[1].At.Add(c.step), left, width)
			fmt.Fprintf(&c.Buffer, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
				from, y+2, min(to, float64(left+width))-from, height-4, colours[p.Colour(r[0].Value)])
		}
	}
	y := b.y + rows*height + axis - 4
	c.times(left, y, width)
	c.more(b, len(series)-rows)
	x := left
	for _, s := range panels.States {
		c.rect(box{x: x, y: b.y + b.h - 10, w: 10, h: 10}, colours[s.Colour], "none")
		c.text(x+14, b.y+b.h-1, font-1, "normal", "#24292e", s.Text)
		x += 30 + len(s.Text)*7
	}
}

// runs are the first and the last of consecutive points with one value.
func (c *canvas) runs(points []Point) (runs [][2]Point) {
	for _, point := range points {
		if math.IsNaN(point.Value) {
			continue
		}
		last := len(runs) - 1
		if last >= 0 && runs[last][0].Value == point.Value && !c.apart(runs[last][1], point) {
			runs[last][1] = point
			continue
		}
		runs = append(runs, [2]Point{point, point})
	}
	return runs
}

// apart reports whether values are missing between two points.
func (c *canvas) apart(a, b Point) bool { return b.At.Sub(a.At) > c.step+c.step/2 }
