/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "testing"

func TestAfterARestore(t *testing.T) {
	var p Protocol
	unconfirmed := with(attachedN, func(n *Node) { n.Unconfirmed = true })
	unheard := with(detachN, func(n *Node) { n.Reported = false })
	used := with(detachN, func(n *Node) { n.Use = Use{UID: "u2", InUse: true} })
	check(t, []verdict{
		{"a session is confirmed once everybody was heard", p.MayConfirm(attachedN, true, false), GuardNone},
		{"not before", p.MayConfirm(attachedN, false, false), GuardHeard},
		{"nor before its own agent was heard", p.MayConfirm(Node{Exists: true}, true, false), GuardReported},
		{"nor while another node uses what is attached here", p.MayConfirm(attachedN, true, true), GuardUsedElsewhere},
		{"nothing is taken into use in a session that is not confirmed", p.MaySetInUse(unconfirmed, "u1"), GuardConfirmed},
		{"an exclusive volume that is in use elsewhere is not brought in", p.MayBringIn(true, true), GuardUsedElsewhere},
		{"a shared one is", p.MayBringIn(false, true), GuardNone},
		{"what stands as Detaching is not deleted before the agent was heard", p.MayDelete(unheard, liveU1), GuardReported},
		{"nor while the agent uses the volume under a later attachment", p.MayDelete(used, liveU1), GuardNotInUse},
	})
}

func TestARestoredAPIMovesNothingThatIsInUse(t *testing.T) {
	// An entry that the backup has; then it is used, and then the API is restored.
	usedSince := join(attaches(onA), []do{{kind: actBackup}}, []do{
		{kind: actSetInUse, node: onA}, {kind: actRecord, node: onA}, {kind: actCall, node: onA},
		{kind: actCallMounts, node: onA}, {kind: actRestore},
	})
	unpublishes := []do{{actDecideDelete, onA, present}, {actDelete, onA, present}, {kind: actUnpublish, node: onA}}
	// The volume has moved to B since.
	moves := join([]do{{actWriteDetaching, onA, present}}, isUnpublished(onA), []do{{actForget, onA, present}},
		movesLockFrom(onA), attaches(onB), isUsed(onB), []do{{kind: actRestore}})
	movedSince := join(locks, attaches(onA), []do{{kind: actBackup}}, moves)
	// The same, where B was cut off and tainted when the backup was taken.
	isTainted := []do{{kind: actCutOff, node: onB}, {kind: actTaint, node: onB}, {kind: actRecordTaint, node: onB}}
	isBack := []do{{kind: actBeginSession, node: onB}, {kind: actConfirm, node: onB}, {kind: actUntaint, node: onB},
		{kind: actRecordTaint, node: onB}}
	movedToTainted := join(isTainted, locks, attaches(onA), []do{{kind: actBackup}}, isBack, moves)
	bothBegin := []do{{kind: actBeginSession, node: onA}, {kind: actBeginSession, node: onB}}
	bothHeard := []do{{kind: actHear, node: onA}, {kind: actHear, node: onB}}
	twoLeaders := restoreExclusiveWorld
	twoLeaders.leaders = 2
	withTaints := twoLeaders
	withTaints.asserts = true
	for _, test := range []struct {
		name   string
		world  world
		guard  Guard
		effect effect
		before []do
		// refused is possible only without the guard; then the rest follows.
		refused, then []do
		want          Invariant
	}{
		{
			name: "a manager that is started first believes no report", world: restoreWorld, guard: GuardReported,
			before: usedSince, refused: []do{{actWriteDetaching, onA, present}}, then: unpublishes, want: I2,
		},
		{
			name: "a manager that is started first believes no Lease that only stands there", world: restoreWorld,
			effect: effectHeardLive,
			before: usedSince, refused: []do{{kind: actHear, node: onA}},
			then: join([]do{{actWriteDetaching, onA, present}}, unpublishes), want: I2,
		},
		{
			name: "a manager that goes on does not believe what it heard before", world: restoreWorld,
			effect: effectListensAgain,
			before: usedSince, refused: []do{{actWriteDetaching, onA, present}}, then: unpublishes, want: I2,
		},
		{
			name: "an agent does not take what its own disk knows nothing of", world: twoLeaders, guard: GuardConfirmed,
			before: join(movedSince, bothBegin), refused: []do{{kind: actSetInUse, node: onA}}, then: isUsed(onA)[1:], want: I3,
		},
		{
			name: "nobody is confirmed before everybody was heard", world: twoLeaders, guard: GuardHeard,
			before: join(movedSince, bothBegin[:1], bothHeard[:1]), refused: []do{{kind: actConfirm, node: onA}},
			then: isUsed(onA), want: I3,
		},
		{
			name: "nobody is confirmed because of a taint that the backup contains", world: withTaints,
			effect: effectExcuseOfThis,
			before: join(movedToTainted, bothBegin[:1], bothHeard[:1]), refused: []do{{kind: actConfirm, node: onA}},
			then: isUsed(onA), want: I3,
		},
		{
			name: "nobody is confirmed for what is in use elsewhere", world: twoLeaders, guard: GuardUsedElsewhere,
			before: join(movedSince, bothBegin, bothHeard), refused: []do{{kind: actConfirm, node: onA}},
			then: isUsed(onA), want: I3,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			done, broken, trace := run(newModel(test.world, GuardNone, effectNone), join(test.before, test.refused))
			if done != len(test.before) || broken != "" {
				t.Fatalf("want a refusal at line %d, came to %d, %s\n%s", len(test.before), done, broken, trace)
			}
			script := join(test.before, test.refused, test.then)
			done, broken, trace = run(newModel(test.world, test.guard, test.effect), script)
			if done != len(script) || broken != test.want {
				t.Fatalf("without %s%s: want %q after %d lines, got %q after %d\n%s", test.guard, test.effect, test.want,
					len(script), broken, done, trace)
			}
			t.Logf("without %s%s, %s is broken:\n%s", test.guard, test.effect, broken, trace)
		})
	}
}
