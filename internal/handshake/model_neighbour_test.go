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
	if !st.exclusive {
		return
	}
	// A ConfigMap has the locks of many volumes, also where that of this one is missing.
	s := st.from
	if st.overwritesLocks && s.older.lock.exists {
		s.lock = s.older.lock
	}
	st.wroteLock(&s, st.from.lock)
	st.emit(act{kind: actNeighbourLocks}, s)
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
	states, locks := exclusiveWorld, exclusiveWorld
	states.overwrites, locks.overwritesLocks = true, true
	for name, w := range map[string]world{"its Detaching": states, "its lock": locks} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.neighbours = true
			if _, v := exploreAll(t, newModel(w, GuardNone, effectNone)); v == nil {
				t.Errorf("a manager of other volumes that takes %s back: no invariant is broken, want one", name)
			} else {
				t.Logf("%s: %s", name, v)
			}
		})
	}
}
