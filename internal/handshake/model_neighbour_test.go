/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "testing"

// Managers of other volumes. A state lists the volumes of a node, so they write it too, at the version that they read.
// Of the volume that is explored they change nothing. The counters of the state are numbers that only grow, and an
// agent that has observed one has observed all before it: a higher one voids nothing. What is left is that the version
// is another one.
func (st *stepper) neighbourActs() {
	for n := range st.nodes {
		if !st.from.node[n].exists {
			continue
		}
		s := st.from
		if h := &s.node[n]; st.overwrites && h.entry.state == entryDetaching {
			h.entry = entry{state: entryAttached, uid: h.entry.uid}
		}
		st.wroteState(&s, n)
		st.emit(act{kind: actNeighbour, node: uint8(n)}, s)
	}
}

// TestManagersOfOtherVolumesBreakNothing explores worlds in which other managers, of other volumes, are active all the
// time. In most of them there are as many states as without: what such a write voids, a leader or an agent may have let
// go by itself.
func TestManagersOfOtherVolumesBreakNothing(t *testing.T) {
	for _, w := range []world{exclusiveWorld, collectWorld, sharedWorld, kubeletWorld, intentWorld, uncutWorld,
		cutExclusiveWorld} {
		w.name, w.neighbours = w.name+", beside other managers", true
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			e, v := exploreAll(t, newModel(w, GuardNone, effectNone))
			if v != nil {
				t.Fatalf("world %q: %s, want every invariant to hold in every state", w.name, v)
			}
			report(t, "%-62s %8d states, %9d steps", w.name, len(e.states), e.taken)
		})
	}
}

func TestAManagerThatWritesAnotherVolumeBackAsItWasIsFound(t *testing.T) {
	w := exclusiveWorld
	w.neighbours, w.overwrites = true, true
	if _, v := exploreAll(t, newModel(w, GuardNone, effectNone)); v == nil {
		t.Error("a manager of other volumes that takes Detaching back: no invariant is broken, want one")
	}
}
