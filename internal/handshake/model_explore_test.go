/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "fmt"

// exploration is every state that can be reached, breadth first, so that a counterexample is as short as can be.
type exploration struct {
	*model
	states []state
	index  map[state]uint32
	came   []origin
	taken  int
	// healthy holds, for each state, what follows without a fault: targets[offsets[i]:offsets[i+1]].
	offsets []uint32
	targets []uint32
}

type origin struct {
	from uint32
	act  act
}

// violation is an invariant that does not hold, and how it came to that.
type violation struct {
	invariant Invariant
	trace     []string
}

func (v *violation) String() string {
	text := string(v.invariant) + " is broken:\n"
	for i, line := range v.trace {
		text += fmt.Sprintf("  %2d. %s\n", i+1, line)
	}
	return text
}

func newModel(w world, without Guard, eff effect) *model {
	return &model{world: w, rules: Protocol{Kubelet: w.kubelet, without: without}, without: eff, fresh: freshInExploration,
		freshBoot: freshInExploration}
}

func (m *model) start() state {
	var s state
	for i := range m.nodes {
		s.node[i].exists = true
		s.node[i].up = !m.agentless
		reported := !m.unreported && !m.agentless
		s.node[i].reported, s.node[i].booted = reported, reported
		if m.kubelet && m.reboot {
			s.node[i].kubelet.boot, s.node[i].kubelet.named, s.node[i].kubelet.said = 1, 1, 1
		}
	}
	return s.canonical()
}

// explore visits every state up to the bound. It returns the first violation of I1, I2, I3, I5 or I6.
func (m *model) explore(bound int) (*exploration, *violation, error) {
	e := &exploration{model: m, index: map[state]uint32{}}
	e.add(m.start(), origin{})
	var buffer []next
	for i := 0; i < len(e.states); i++ {
		e.offsets = append(e.offsets, uint32(len(e.targets)))
		buffer = m.steps(e.states[i], buffer)
		for _, to := range buffer {
			e.taken++
			s := to.state.canonical()
			if to.broken != "" {
				return e, e.violation(to.broken, uint32(i), to.act, s), nil
			}
			j, seen := e.index[s]
			if !seen {
				if b := m.broken(&s); b != "" {
					return e, e.violation(b, uint32(i), to.act, s), nil
				}
				if len(e.states) >= bound {
					return e, nil, fmt.Errorf("world %q has more than %d states", m.name, bound)
				}
				j = e.add(s, origin{uint32(i), to.act})
			}
			if !to.fault {
				e.targets = append(e.targets, j)
			}
		}
	}
	e.offsets = append(e.offsets, uint32(len(e.targets)))
	return e, nil, nil
}

func (e *exploration) add(s state, o origin) uint32 {
	i := uint32(len(e.states))
	e.states = append(e.states, s)
	e.index[s] = i
	e.came = append(e.came, o)
	return i
}

// trapped searches for I4: a state from which no step without a fault leads to a goal.
func (e *exploration) trapped() *violation {
	goals := map[string]func(*state) bool{"everything is released and detached": e.clean}
	for i := range e.nodes {
		goals["the volume is used on "+nodeNames[i+1]] = func(s *state) bool { return e.used(s, i) }
	}
	for name, goal := range goals {
		if i, ok := e.cannotReach(goal); ok {
			v := e.violation(I4, i, act{}, state{})
			v.trace = append(v.trace, "from here on there is no way without a fault to where "+name)
			return v
		}
	}
	return nil
}

// cannotReach walks back from the goal and returns the first state that it does not come to.
func (e *exploration) cannotReach(goal func(*state) bool) (uint32, bool) {
	return cannotReach(e.offsets, e.targets, func(i uint32) bool { return goal(&e.states[i]) })
}

// cannotReach is that of the states i, from which targets[offsets[i]:offsets[i+1]] follow.
func cannotReach(offsets, targets []uint32, goal func(uint32) bool) (uint32, bool) {
	n := len(offsets) - 1
	starts := make([]uint32, n+1)
	for _, t := range targets {
		starts[t+1]++
	}
	for i := range n {
		starts[i+1] += starts[i]
	}
	sources, fill := make([]uint32, len(targets)), make([]uint32, n)
	for i := range n {
		for _, t := range targets[offsets[i]:offsets[i+1]] {
			sources[starts[t]+fill[t]] = uint32(i)
			fill[t]++
		}
	}
	reached, queue := make([]bool, n), []uint32{}
	for i := range uint32(n) {
		if goal(i) {
			reached[i] = true
			queue = append(queue, i)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		t := queue[0]
		for _, s := range sources[starts[t]:starts[t+1]] {
			if !reached[s] {
				reached[s] = true
				queue = append(queue, s)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return uint32(i), true
		}
	}
	return 0, false
}

// violation shows how the state at i came about, and the step after it where there is one.
func (e *exploration) violation(inv Invariant, i uint32, last act, to state) *violation {
	type hop struct {
		act act
		to  state
	}
	var hops []hop
	if last.kind != 0 {
		hops = append(hops, hop{last, to})
	}
	for ; i != 0; i = e.came[i].from {
		hops = append(hops, hop{e.came[i].act, e.states[i]})
	}
	t := newTeller(e.model)
	for j := len(hops) - 1; j >= 0; j-- {
		t.follow(hops[j].act, hops[j].to)
	}
	return &violation{inv, t.lines}
}
