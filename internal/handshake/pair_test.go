/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "testing"

var (
	pairForceWorld = world{
		name: "forced detaches", nodes: 1, leaders: 1, cuts: true, crash: true, late: true, force: true,
	}
	pairUncutWorld = world{
		name: "a driver that does not cut access", nodes: 1, leaders: 1, calls: true, crash: true, late: true,
		reboot: true, force: true,
	}
	pairKubeletWorld = world{name: "the kubelet publishes", nodes: 1, leaders: 1, cuts: true, kubelet: true}

	pairWorlds = []world{pairForceWorld, pairUncutWorld, pairKubeletWorld}
)

// pairBound keeps the memory of one exploration of pairs below 1 GiB.
const pairBound = 4_000_000

// explorePairs explores until an invariant is broken or every pair is known.
func explorePairs(t *testing.T, p *pairs) *violation {
	t.Helper()
	most := pairBound
	if testing.Short() {
		most = shortBound
	}
	v, err := p.explore(most)
	if err != nil && testing.Short() {
		leaveOut(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTwoManagersOfDifferentVolumesBreakNothing(t *testing.T) {
	for _, w := range pairWorlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			p := newPairs(w, nil)
			if v := explorePairs(t, p); v != nil {
				t.Fatalf("two volumes, two managers, %s: %s, want every invariant to hold in every state", w.name, v)
			}
			report(t, "two volumes with a manager each, %-38s %8d states, %9d steps", w.name, len(p.states), p.taken)
			checkNeighbours(t, w, p)
		})
	}
}

// checkNeighbours: what one volume gets beside another one is what it gets in the world beside managers of other
// volumes, which do no more than write. So the larger worlds need no second volume. What an agent knows of its last
// write is left out of the comparison: that write may have been one for the other volume.
func checkNeighbours(t *testing.T, w world, p *pairs) {
	t.Helper()
	w.neighbours = true
	e, v := exploreAll(t, newModel(w, GuardNone, effectNone))
	if v != nil {
		t.Fatal(v)
	}
	plain := func(s state) state {
		s.node[0].acked = false
		return s
	}
	known := map[state]bool{}
	for _, s := range e.states {
		known[plain(s)] = true
	}
	missing := 0
	for s := range p.numbers {
		if !known[plain(s)] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of the %d states of a volume are not among the %d beside managers of other volumes, want all of them",
			missing, len(p.numbers), len(e.states))
	}
}

func TestAManagerThatIsCarelessWithTheOthersVolumesIsFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		careless func(*entry)
		want     Invariant
	}{
		{"it writes the list without the other's volumes", func(e *entry) { *e = entry{} }, I5},
		{"it writes at no version, and so the other's volumes as they were", func(e *entry) {
			if e.state == entryDetaching {
				*e = entry{state: entryAttached, uid: e.uid}
			}
		}, I1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPairs(pairUncutWorld, c.careless)
			v := explorePairs(t, p)
			if v == nil || v.invariant != c.want {
				t.Fatalf("a manager that is careless: %v in %d states, want %s broken", v, len(p.states), c.want)
			}
			report(t, "beside another manager: %-64s %s (%d acts)", c.name, v.invariant, len(v.trace))
			t.Logf("%s: %s", c.name, v)
		})
	}
}
