/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"fmt"
	"slices"
	"time"
)

// goal is one target of Hawser, and the result.
type goal struct {
	what, wanted, measured string
}

// target of attach or detach for one kind of wish: rates as shares of others', and writes for each volume.
type target struct {
	wish, way          string
	of                 func(Turn) Phase
	lifted, upstream   float64
	writes             float64
	alone              func(Point) time.Duration
	aloneAgainstOthers string
}

func attachOf(t Turn) Phase { return t.Attach }
func detachOf(t Turn) Phase { return t.Detach }

func attachAlone(p Point) time.Duration { return p.Attach.P50 }
func detachAlone(p Point) time.Duration { return p.Detach.P50 }

const (
	aTenth    = "<= 1/10 of upstream's"
	notSlower = "not slower than upstream's"
	// bareShare is the share of the bare client's rate that Hawser must reach.
	bareShare = 0.8
)

var targets = []target{
	{"intents", "attach", attachOf, 0.6, 8, 5, attachAlone, aTenth},
	{"intents", "detach", detachOf, 1.5, 25, 4, detachAlone, notSlower},
	{"pods", "attach", attachOf, 0.3, 6, 5, attachAlone, aTenth},
	{"pods", "detach", detachOf, 0.7, 20, 4, detachAlone, notSlower},
}

// goals compares the contenders of the run.
func (r *Report) goals() []goal {
	var all []goal
	for _, t := range targets {
		if hawser, ok := r.turn("hawser-" + t.wish); ok {
			all = append(all, r.rates(hawser, t)...)
		}
	}
	for _, wish := range []string{"intents", "pods"} {
		if hawser, ok := r.turn("hawser-" + wish); ok {
			all = append(all, r.costs(hawser, wish)...)
		}
	}
	return all
}

func (r *Report) rates(hawser Turn, t target) []goal {
	var all []goal
	name := t.way + ", " + t.wish
	for _, rival := range []struct {
		name, is string
		share    float64
	}{
		{"bare-" + t.wish, "the bare client's rate", bareShare},
		{"upstream-lifted", "upstream's with its limits lifted", t.lifted},
		{"upstream", "upstream's with its default limits", t.upstream},
	} {
		if other, ok := r.turn(rival.name); ok && t.of(other).PerSecond > 0 {
			all = append(all, goal{
				name + ", against " + rival.is, fmt.Sprintf(">= %gx", rival.share),
				fmt.Sprintf("%.2fx", t.of(hawser).PerSecond/t.of(other).PerSecond),
			})
		}
	}
	all = append(all, goal{name + ", our writes for each volume", fmt.Sprintf("<= %g", t.writes),
		fmt.Sprintf("%.2f", t.of(hawser).WritesPerVolume)})
	if other, ok := r.turn("upstream"); ok {
		all = append(all, goal{
			"one volume on an idle cluster, " + name, t.aloneAgainstOthers,
			fmt.Sprintf("p50 %s, upstream's %s", show(t.alone(hawser.OneByOne[0])), show(t.alone(other.OneByOne[0]))),
		})
	}
	return all
}

// costs of memory and of one change.
func (r *Report) costs(hawser Turn, wish string) []goal {
	var all []goal
	if other, ok := r.turn("upstream-lifted"); ok && other.Memory.Peak > 0 {
		all = append(all, goal{"peak memory, " + wish, "<= 1.5x upstream's with its limits lifted",
			fmt.Sprintf("%.2fx", float64(hawser.Memory.Peak)/float64(other.Memory.Peak))})
	}
	points := slices.Clone(hawser.OneByOne)
	slices.SortFunc(points, func(p, q Point) int { return p.Existing - q.Existing })
	if len(points) > 2 {
		few, many := points[1], points[len(points)-1]
		all = append(all, goal{
			fmt.Sprintf("one change next to %d volumes against %d, %s", many.Existing, few.Existing, wish), "the same",
			fmt.Sprintf("attach %.2fx, detach %.2fx, CPU %.2fx", ratio(many.Attach.P50, few.Attach.P50),
				ratio(many.Detach.P50, few.Detach.P50),
				ratio(many.CPU.Contender, few.CPU.Contender)),
		})
	}
	return all
}

func ratio[T ~int64](a, b T) float64 { return float64(a) / float64(max(b, 1)) }

func (r *Report) turn(name string) (Turn, bool) {
	i := slices.IndexFunc(r.Turns, func(t Turn) bool { return t.Name == name })
	if i < 0 {
		return Turn{}, false
	}
	return r.Turns[i], true
}

func (r *Report) printGoals(p printer) {
	p.line("")
	p.row("", "goal", "measured")
	p.rule(3)
	for _, g := range r.goals() {
		p.row(g.what, g.wanted, g.measured)
	}
}
