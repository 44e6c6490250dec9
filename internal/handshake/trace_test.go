/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"strings"
	"testing"
)

// do is one line of a script: an act of leader 0 or 1 or of the node's other processes.
type do struct {
	kind actKind
	node uint8
	who  uint8
}

const (
	onA, onB         = 0, 1
	sleeper, present = 0, 1
)

// run follows the script as far as the protocol allows. It returns how many lines that were, what was
// broken in the last of them, and the trace.
func run(m *model, script []do) (int, Invariant, string) {
	t := newTeller(m)
	for i, d := range script {
		n, ok := t.find(d)
		if !ok {
			return i, "", strings.Join(t.lines, "\n")
		}
		t.take(n)
		if b := n.broken; b != "" {
			return i + 1, b, strings.Join(t.lines, "\n")
		}
		if b := m.broken(&t.now); b != "" {
			return i + 1, b, strings.Join(t.lines, "\n")
		}
	}
	return len(script), "", strings.Join(t.lines, "\n")
}

// find searches for the step among those that are possible. Where compare-and-swap is left out, Detaching is written in
// two.
func (t *teller) find(d do) (next, bool) {
	for _, n := range t.steps(t.now, nil) {
		if n.act.kind == d.kind && n.act.node == d.node && n.act.who == d.who {
			return n, true
		}
	}
	if d.kind == actWriteDetaching && t.without == effectCAS {
		if n, ok := t.find(do{actDecideDetaching, d.node, d.who}); ok {
			t.take(n)
			return t.find(d)
		}
	}
	return next{}, false
}

func join(parts ...[]do) []do {
	var all []do
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// The parts that scripts are made of, each by the leader that is present.
func publishes(n uint8) []do {
	return []do{{actCreate, n, present}, {kind: actPublish, node: n}, {kind: actStatusAttached, node: n}}
}

func decidesAttached(n, who uint8) []do {
	return []do{{actReadState, n, who}, {actReadLock, n, who}, {actReadVA, n, who}}
}

func attaches(n uint8) []do {
	return join(publishes(n), decidesAttached(n, present), []do{{actWriteAttached, n, present}})
}

func isUsed(n uint8) []do {
	return []do{{kind: actSetInUse, node: n}, {kind: actRecord, node: n}, {kind: actCallMounts, node: n}}
}

func isReleased(n uint8) []do {
	return []do{{kind: actUnstage, node: n}, {kind: actClear, node: n}}
}

func isUnpublished(n uint8) []do {
	return []do{{actDecideDelete, n, present}, {actDelete, n, present}, {kind: actUnpublish, node: n}}
}

func detaches(n uint8) []do {
	return join([]do{{actWriteDetaching, n, present}}, isUnpublished(n), []do{{actForget, n, present}})
}

func isForcedAway(n uint8) []do {
	return join([]do{{actWriteForced, n, present}, {actHoldName, n, present}}, isUnpublished(n))
}

func movesLockFrom(n uint8) []do {
	return []do{
		{actDecideMove, n, present}, {actMoveLock, n, present}, {actReadMovedLock, n, present},
		{actDecideFence, n, present}, {actFence, n, present}, {actClearMovedFrom, n, present},
	}
}

func collectsLockOf(n uint8) []do {
	return []do{
		{actDecideMove, n, present}, {actGiveUpLock, n, present}, {actReadMovedLock, n, present},
		{actDecideFence, n, present}, {actFence, n, present}, {kind: actCollectLock, who: present},
	}
}

var locks = []do{{actCreateLock, onA, present}}

func TestTheProtocolWithstandsOneWhoWakesUp(t *testing.T) {
	noCalls := agentWorld
	noCalls.calls = false
	for _, test := range []struct {
		name   string
		world  world
		guard  Guard
		effect effect
		// before is possible in any case; then someone wakes up, and without the guard the rest follows.
		before, wakes, then []do
		// unknown are acts of the guard that a process without it would not do.
		unknown []actKind
		want    Invariant
	}{
		{
			name: "a delete that wakes up after the volume went elsewhere and came back", world: exclusiveWorld,
			effect: effectUID,
			before: join(locks, attaches(onA), []do{{actWriteDetaching, onA, present}, {actDecideDelete, onA, sleeper}},
				isUnpublished(onA), []do{{actForget, onA, present}}, movesLockFrom(onA),
				attaches(onB), isUsed(onB), isReleased(onB), detaches(onB), movesLockFrom(onB), attaches(onA), isUsed(onA)),
			wakes: []do{{actDelete, onA, sleeper}},
			then:  []do{{kind: actUnpublish, node: onA}},
			want:  I2,
		},
		{
			name: "an Attached that wakes up after its attachment was deleted", world: noCalls, effect: effectCAS,
			before: join(publishes(onA), decidesAttached(onA, sleeper), []do{{actWriteDetaching, onA, present}},
				isUnpublished(onA)),
			wakes: []do{{actWriteAttached, onA, sleeper}},
			then:  isUsed(onA),
			want:  I1,
		},
		{
			name: "an Attached that wakes up after the lock went elsewhere", world: exclusiveWorld, effect: effectFenceChanges,
			before: join(locks, []do{{actReadState, onA, sleeper}, {actReadLock, onA, sleeper}},
				movesLockFrom(onA), attaches(onB), isUsed(onB), publishes(onA)),
			wakes: []do{{actReadVA, onA, sleeper}},
			then:  join([]do{{actWriteAttached, onA, sleeper}}, isUsed(onA)),
			want:  I3,
		},
		{
			name: "an Attached that wakes up after the lock was collected and made anew", world: collectWorld,
			effect: effectCollectFenced,
			before: join(locks, []do{{actReadState, onA, sleeper}, {actReadLock, onA, sleeper}},
				collectsLockOf(onA), []do{{actCreateLock, onB, present}}, attaches(onB), isUsed(onB), publishes(onA)),
			wakes:   []do{{actReadVA, onA, sleeper}},
			then:    join([]do{{actWriteAttached, onA, sleeper}}, isUsed(onA)),
			unknown: []actKind{actReadMovedLock, actDecideFence, actFence},
			want:    I3,
		},
		{
			name: "a create by a leader long deposed", world: noCalls, guard: GuardNameHeld, unknown: []actKind{actHoldName},
			before: join(attaches(onA), isUsed(onA), []do{{actWriteForced, onA, present}, {actHoldName, onA, present}},
				isUnpublished(onA)),
			wakes: []do{{actCreate, onA, sleeper}},
			then:  []do{{kind: actPublish, node: onA}},
			want:  I5,
		},
		{
			name: "a forced detach A -> B -> A with A's old mount alive", world: forceWorld, guard: GuardForcedAwayReported,
			before: join(locks, attaches(onA), isUsed(onA), isForcedAway(onA), movesLockFrom(onA),
				attaches(onB), isUsed(onB), isReleased(onB), detaches(onB), movesLockFrom(onB)),
			wakes: []do{{actFreeName, onA, sleeper}},
			then:  []do{{actCreate, onA, sleeper}, {kind: actPublish, node: onA}},
			want:  I5,
		},
		{
			name: "an agent that died inside a stage call which ends later", world: agentWorld, guard: GuardCallsEnded,
			before: join(attaches(onA), []do{
				{kind: actSetInUse, node: onA}, {kind: actRecord, node: onA}, {kind: actCall, node: onA},
				{kind: actCrash, node: onA}, {kind: actStart, node: onA}, {kind: actUnstage, node: onA},
			}),
			wakes: []do{{kind: actClear, node: onA}},
			then: join([]do{{actWriteDetaching, onA, present}, {actDecideDelete, onA, present}, {actDelete, onA, present},
				{kind: actUnpublish, node: onA}}),
			want: I2,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			script := join(test.before, test.wakes, test.then)
			before := test.before
			for _, kind := range test.unknown {
				script = without(script, kind)
			}
			done, broken, trace := run(newModel(test.world, GuardNone, effectNone), join(before, test.wakes, test.then))
			if done != len(before) || broken != "" {
				t.Fatalf("want the one who wakes up refused at line %d, came to %d, %s\n%s", len(before), done, broken, trace)
			}
			t.Logf("refused is %q after\n%s", words[test.wakes[0].kind], trace)
			done, broken, trace = run(newModel(test.world, test.guard, test.effect), script)
			if done != len(script) || broken != test.want {
				t.Fatalf("without %s%s: want %q after %d lines, got %q after %d\n%s",
					test.guard, test.effect, test.want, len(script), broken, done, trace)
			}
			t.Logf("without %s%s, %s is broken:\n%s", test.guard, test.effect, broken, trace)
		})
	}
}

// without is the script of one that does not know the guard's act.
func without(script []do, kind actKind) []do {
	var rest []do
	for _, d := range script {
		if d.kind != kind {
			rest = append(rest, d)
		}
	}
	return rest
}
