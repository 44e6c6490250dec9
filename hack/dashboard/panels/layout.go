/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package panels

// Columns of the dashboard.
const Columns = 24

// Place of a panel, in columns and lines of the dashboard.
type Place struct{ X, Y, W, H int }

// Placed is a panel in its place.
type Placed struct {
	*Panel
	Place
}

// PlacedRow is a row whose title is one line high.
type PlacedRow struct {
	*Row
	Place
	Panels []Placed
}

// size of a panel, in columns and lines.
func (p *Panel) size() (w, h int) {
	switch p.Kind {
	case Stat:
		w, h = 3, 3
	case Table, StateTimeline:
		w, h = 12, 9
	default:
		w, h = 8, 7
	}
	if p.Width > 0 {
		w = p.Width
	}
	return w, h
}

// Layout places the panels of each row from left to right, line by line. It returns the height of all too.
func Layout(rows []Row) ([]PlacedRow, int) {
	var placed []PlacedRow
	y := 0
	for i := range rows {
		row := PlacedRow{Row: &rows[i], Place: Place{X: 0, Y: y, W: Columns, H: 1}}
		y++
		x, line := 0, 0
		for j := range rows[i].Panels {
			p := &rows[i].Panels[j]
			w, h := p.size()
			if x+w > Columns {
				x, y, line = 0, y+line, 0
			}
			row.Panels = append(row.Panels, Placed{Panel: p, Place: Place{X: x, Y: y, W: w, H: h}})
			x, line = x+w, max(line, h)
		}
		y += line
		placed = append(placed, row)
	}
	return placed, y
}
