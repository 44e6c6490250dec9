/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"slices"
	"strings"
)

// Two volumes on one node, each with a manager of its own. Both managers are active for good, each has its own copies
// of what it has read, and both write the one NodeVolumeState and the one Node, which list both volumes. One agent, or
// one kubelet, serves both: it crashes and starts with both, and each of its writes reports both.
//
// A state of this world is a pair of states of a world of one volume. What a step of one volume writes into a common
// object voids what waits to be written of the other one at an older version. Each half is kept once, so that a pair is
// two numbers.

// pairs is every pair that can be reached, breadth first.
type pairs struct {
	*model
	// careless is what a manager does to the other volume's entry when it writes the state.
	careless func(*entry)

	halves  []half
	numbers map[state]uint32

	states []pair
	index  map[pair]uint32
	came   []pairOrigin
	taken  int
	// healthy holds, for each pair, what follows without a fault, as in an exploration.
	offsets, targets []uint32
}

// pair of halves, the smaller number first: the volumes are interchangeable, with their managers.
type pair [2]uint32

type pairOrigin struct {
	from uint32
	// acts of the halves, in the order in which from has them. One of them may be none.
	acts [2]act
}

// half is what there is of one volume.
type half struct {
	state  state
	broken Invariant
	steps  []halfStep
	known  bool
}

type halfStep struct {
	act              act
	to               uint32
	wrote, wroteNode bool
	fault            bool
	broken           Invariant
}

type pairStep struct {
	acts   [2]act
	to     pair
	wrote  bool
	fault  bool
	broken Invariant
}

// ofBoth are the acts of what serves both volumes.
var ofBoth = []actKind{actStart, actCrash, actReboot, actReport, actStateCreated, actLook, actReportLook,
	actKubeletRestarts}

// byAgent are the other writes of the agent. One whose outcome is not known leaves it in doubt of both volumes.
var byAgent = []actKind{actSetInUse, actClear, actLateWrite}

func newPairs(w world, careless func(*entry)) *pairs {
	return &pairs{model: newModel(w, GuardNone, effectNone), careless: careless, numbers: map[state]uint32{},
		index: map[pair]uint32{}}
}

func (p *pairs) number(s state) uint32 {
	s = s.canonical()
	if i, known := p.numbers[s]; known {
		return i
	}
	i := uint32(len(p.halves))
	p.numbers[s] = i
	p.halves = append(p.halves, half{state: s, broken: p.broken(&s)})
	return i
}

// alone are the steps of one volume.
func (p *pairs) alone(i uint32) []halfStep {
	if p.halves[i].known {
		return p.halves[i].steps
	}
	var steps []halfStep
	for _, n := range p.model.steps(p.halves[i].state, nil) {
		h := &n.state.node[0]
		steps = append(steps, halfStep{act: n.act, to: p.number(n.state), wrote: h.wrote, wroteNode: h.wroteNode,
			fault: n.fault, broken: n.broken})
	}
	p.halves[i].steps, p.halves[i].known = steps, true
	return steps
}

// beside is what becomes of the other volume's half i by a step of one volume.
func (p *pairs) beside(i uint32, step halfStep) uint32 {
	s := p.halves[i].state
	st := &stepper{model: p.model, from: s}
	agent := slices.Contains(byAgent, step.act.kind)
	if step.wrote {
		if p.careless != nil && !agent && !slices.Contains(ofBoth, step.act.kind) {
			p.careless(&s.node[0].entry)
		}
		st.wroteState(&s, 0)
	}
	if step.wroteNode {
		st.wroteNode(&s)
	}
	if agent && step.act.kind != actLateWrite {
		s.node[0].acked = p.halves[step.to].state.node[0].acked
	}
	return p.number(s)
}

// follow are the steps of a pair.
func (p *pairs) follow(from pair) []pairStep {
	var out []pairStep
	steps := [2][]halfStep{p.alone(from[0]), p.alone(from[1])}
	for side := range 2 {
		for _, s := range steps[side] {
			if slices.Contains(ofBoth, s.act.kind) {
				continue
			}
			next := pairStep{wrote: s.wrote, fault: s.fault, broken: s.broken}
			next.acts[side], next.to[side] = s.act, s.to
			next.to[1-side] = p.beside(from[1-side], s)
			out = append(out, next)
		}
	}
	for _, kind := range ofBoth {
		out = append(out, p.together(from, steps, kind)...)
	}
	return out
}

// together takes the steps of that kind in both halves, or in the only one that has some.
func (p *pairs) together(from pair, steps [2][]halfStep, kind actKind) []pairStep {
	var of [2][]halfStep
	for side := range 2 {
		for _, s := range steps[side] {
			if s.act.kind == kind {
				of[side] = append(of[side], s)
			}
		}
	}
	if len(of[0])+len(of[1]) == 0 {
		return nil
	}
	for side := range 2 {
		if len(of[side]) == 0 {
			of[side] = []halfStep{{to: p.beside(from[side], of[1-side][0])}}
		}
	}
	var out []pairStep
	for _, a := range of[0] {
		for _, b := range of[1] {
			next := pairStep{acts: [2]act{a.act, b.act}, to: pair{a.to, b.to}, wrote: a.wrote || b.wrote,
				fault: a.fault || b.fault, broken: a.broken}
			if next.broken == "" {
				next.broken = b.broken
			}
			out = append(out, next)
		}
	}
	return out
}

func (p *pairs) brokenAt(at pair) Invariant {
	if b := p.halves[at[0]].broken; b != "" {
		return b
	}
	return p.halves[at[1]].broken
}

func (at pair) sorted() pair { return pair{min(at[0], at[1]), max(at[0], at[1])} }

func (p *pairs) add(at pair, o pairOrigin) uint32 {
	i := uint32(len(p.states))
	p.states, p.came, p.index[at] = append(p.states, at), append(p.came, o), i
	return i
}

// explore visits every pair up to the bound, and returns the first violation.
func (p *pairs) explore(bound int) (*violation, error) {
	first := p.number(p.start())
	p.add(pair{first, first}, pairOrigin{})
	for i := uint32(0); int(i) < len(p.states); i++ {
		p.offsets = append(p.offsets, uint32(len(p.targets)))
		for _, n := range p.follow(p.states[i]) {
			p.taken++
			if n.broken != "" {
				return p.violation(n.broken, i, &n), nil
			}
			to := n.to.sorted()
			j, seen := p.index[to]
			if b := p.brokenAt(to); !seen && b != "" {
				return p.violation(b, i, &n), nil
			}
			if !seen && len(p.states) >= bound {
				return nil, fmt.Errorf("world %q has more than %d pairs", p.name, bound)
			}
			if !seen {
				j = p.add(to, pairOrigin{i, n.acts})
			}
			if !n.fault {
				p.targets = append(p.targets, j)
			}
		}
	}
	p.offsets = append(p.offsets, uint32(len(p.targets)))
	return p.trapped(), nil
}

// trapped searches for I4, of both volumes at once.
func (p *pairs) trapped() *violation {
	for name, goal := range map[string]func(*state) bool{
		"everything is released and detached": p.clean,
		"both volumes are used":               func(s *state) bool { return p.used(s, 0) },
	} {
		i, ok := cannotReach(p.offsets, p.targets, func(i uint32) bool {
			at := p.states[i]
			return goal(&p.halves[at[0]].state) && goal(&p.halves[at[1]].state)
		})
		if ok {
			v := p.violation(I4, i, nil)
			v.trace = append(v.trace, "from here on there is no way without a fault to where "+name)
			return v
		}
	}
	return nil
}

// violation shows how the pair at i came about, and the step after it where there is one. UIDs have the names of
// canonical states.
func (p *pairs) violation(inv Invariant, i uint32, last *pairStep) *violation {
	path := []uint32{i}
	for ; i != 0; i = p.came[i].from {
		path = append(path, p.came[i].from)
	}
	slices.Reverse(path)
	v, volumes, version := &violation{invariant: inv}, [2]string{"A", "B"}, 1
	take := func(n pairStep) {
		if n.wrote {
			version++
		}
		v.trace = append(v.trace, p.line(n, volumes, version))
		if n.to != n.to.sorted() {
			slices.Reverse(volumes[:])
		}
	}
	for k, j := range path[1:] {
		for _, n := range p.follow(p.states[path[k]]) {
			if n.acts == p.came[j].acts && n.to.sorted() == p.states[j] {
				take(n)
				break
			}
		}
	}
	if last != nil {
		take(*last)
	}
	return v
}

func (p *pairs) line(n pairStep, volumes [2]string, version int) string {
	var parts []string
	for side, a := range n.acts {
		if a.kind == 0 {
			continue
		}
		t := newTeller(p.model)
		t.leaders[0], t.versions[0] = "its manager", version
		t.now = p.halves[n.to[side]].state
		parts = append(parts, "volume "+volumes[side]+": "+t.line(a, &t.now))
	}
	return strings.Join(parts, " | ")
}
