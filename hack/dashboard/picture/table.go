/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package picture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

// rowHeight of a table, and of a timeline with few rows.
const rowHeight = 22

// table has the highest values first, and as many rows as fit.
func (c *canvas) table(b box, p *panels.Panel, series []Series) {
	slices.SortStableFunc(series, func(x, y Series) int { return cmp.Compare(y.last(), x.last()) })
	widths := columnWidths(b.w, p, series)
	x := b.x
	for i, label := range append(slices.Clone(p.Columns), p.Value) {
		c.text(x+4, b.y+15, font, "bold", "#3274d9", label)
		for j := range series[:shown(b.h-rowHeight, len(series))] {
			y := b.y + (j+1)*rowHeight
			if i == 0 {
				fmt.Fprintf(&c.Buffer, `<path d="M%d %dH%d" stroke="#e4e5e6"/>`+"\n", b.x, y, b.x+b.w)
			}
			if label == p.Value {
				c.rect(box{x: x, y: y + 1, w: b.x + b.w - x, h: rowHeight - 2}, colours[p.Colour(series[j].last())], "none")
				c.text(x+6, y+15, font, "normal", "#ffffff", panels.Text(series[j].last(), p.Unit))
				continue
			}
			c.text(x+4, y+15, font, "normal", "#24292e", cut(series[j].Labels[label], widths[i]-6, font))
		}
		if i < len(widths) {
			x += widths[i]
		}
	}
	c.more(b, len(series)-shown(b.h-rowHeight, len(series)))
}

// columnWidths give each label the share of the room that its longest value needs.
func columnWidths(width int, p *panels.Panel, series []Series) []int {
	const value = 104
	var longest []int
	total := 0
	for _, label := range p.Columns {
		n := len(label) + 2
		for _, s := range series {
			n = max(n, len(s.Labels[label])+2)
		}
		longest = append(longest, n)
		total += n
	}
	for i := range longest {
		longest[i] = longest[i] * (width - value) / total
	}
	return longest
}

// shown is how many rows fit, with a line for those that do not.
func shown(height, rows int) int {
	if fits := height / rowHeight; rows > fits {
		return max(fits-1, 0)
	}
	return rows
}

// more says how many rows do not fit.
func (c *canvas) more(b box, rows int) {
	if rows > 0 {
		c.text(b.x+4, b.y+b.h-4, font, "normal", "#6e6e6e", fmt.Sprintf("and %d more", rows))
	}
}
