/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"os"
	"regexp"
	"sort"
	"sync"
	"testing"
)

// summary is printed at the end, also by a go test that prints no passing tests.
var summary struct {
	sync.Mutex
	lines []string
	// leftOut counts the explorations that were not finished.
	leftOut int
}

func TestMain(m *testing.M) {
	code := m.Run()
	sort.Strings(summary.lines)
	for _, line := range summary.lines {
		fmt.Println(line)
	}
	if summary.leftOut > 0 {
		fmt.Printf("handshake: LEFT OUT of a short run: all after the first %d states of %d explorations\n", shortBound,
			summary.leftOut)
	}
	os.Exit(code)
}

func report(t *testing.T, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	summary.Lock()
	defer summary.Unlock()
	summary.lines = append(summary.lines, "handshake: "+line)
}

func TestTheProtocolHoldsInEveryReachableState(t *testing.T) {
	for _, w := range worlds {
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

func TestEachGuardOfTheProtocolIsNeeded(t *testing.T) {
	missing := declaredGuards(t)
	for _, test := range []struct {
		guard Guard
		world world
		want  Invariant
	}{
		{GuardAttachmentLive, agentWorld, I1},
		{GuardDetachingIsFinal, agentWorld, I2},
		{GuardOneAttachment, agentWorld, I2},
		{GuardForcedAwayReported, agentWorld, I5},
		{GuardNameHeld, agentWorld, I5},
		{GuardLockHeld, exclusiveWorld, I3},
		{GuardMoveFenced, exclusiveWorld, I3},
		{GuardHolderDetached, strangerWorld, I3},
		{GuardReported, lostWorld, I2},
		{GuardNotInUse, agentWorld, I2},
		{GuardDetachingStands, agentWorld, I2},
		{GuardAttachmentGone, agentWorld, I2},
		{GuardSameMachine, machineWorld, I2},
		{GuardEntryAttached, agentWorld, I1},
		{GuardUseRecorded, agentWorld, I2},
		{GuardIntentLive, intentWorld, I6},
		{GuardReleased, agentWorld, I2},
		{GuardCallsEnded, agentWorld, I2},
		{GuardMountTable, liarWorld, I2},
		{GuardKubeletReleased, kubeletWorld, I2},
		{GuardAgentLooked, kubeletWorld, I2},
		{GuardForcedAwayReported, kubeletForceWorld, I5},
		{GuardKubeletReleased, kubeletForceWorld, I2},
		{GuardNotDeclared, declareWorld, I2},
		{GuardEarlierEnded, lostWorld, I8},
		{GuardLockGivenUp, collectWorld, I3},
		{GuardOtherBoot, rebootWorld, I2},
		{GuardUseWaiting, rebootWorld, I5},
		{GuardAttachmentGone, rebootWorld, I5},
		{GuardNameFreed, rebootWorld, I4},
		{GuardReported, restoreWorld, I2},
		{GuardConfirmed, restoreExclusiveWorld, I3},
		{GuardHeard, restoreExclusiveWorld, I3},
		{GuardUsedElsewhere, restoreExclusiveWorld, I3},
		{GuardAgentSilent, assertWorld, I9},
		{GuardContradicted, assertWorld, I9},
		{GuardCutHolds, cutWorld, I2},
		{GuardCutHolds, cutKubeletWorld, I2},
		{GuardNoLease, agentlessWorld, I6},
		{GuardHolderDetached, agentlessWorld, I6},
		{GuardNotRestored, agentlessRestoreWorld, I6},
	} {
		delete(missing, test.guard)
		t.Run(string(test.guard)+", "+test.world.name, func(t *testing.T) {
			t.Parallel()
			expectBroken(t, newModel(test.world, test.guard, effectNone), test.want)
		})
	}
	for guard := range missing {
		t.Errorf("guard %q is declared and never left out, want a test that leaves it out", guard)
	}
}

// declaredGuards reads them from the source, so that none can be added without being shown to be needed.
func declaredGuards(t *testing.T) map[Guard]bool {
	t.Helper()
	source, err := os.ReadFile("guards.go")
	if err != nil {
		t.Fatal(err)
	}
	guards := map[Guard]bool{}
	for _, match := range regexp.MustCompile(`Guard = "(\w+)"`).FindAllSubmatch(source, -1) {
		guards[Guard(match[1])] = true
	}
	if len(guards) < 10 {
		t.Fatalf("found only %d guards in guards.go, want at least 10", len(guards))
	}
	return guards
}

func TestEachWayOfReadingAndWritingIsNeeded(t *testing.T) {
	for _, test := range []struct {
		effect effect
		world  world
		want   Invariant
	}{
		{effectUID, agentWorld, I2},
		{effectCAS, agentWorld, I2},
		{effectOrderLock, exclusiveWorld, I3},
		{effectOrderVA, agentWorld, I1},
		{effectLive, exclusiveWorld, I3},
		{effectRecord, agentWorld, I2},
		{effectDeadline, agentWorld, I2},
		{effectAcknowledged, agentWorld, I2},
		{effectUnstageAgain, agentWorld, I2},
		{effectFence, exclusiveWorld, I3},
		{effectFenceChanges, exclusiveWorld, I3},
		{effectUnprotected, uncutWorld, I5},
		{effectIntentLive, intentWorld, I6},
		{effectUnlist, kubeletWorld, I2},
		{effectUnlistChanges, kubeletWorld, I2},
		{effectLookAgain, kubeletWorld, I2},
		{effectLookAfter, kubeletWorld, I2},
		{effectMissing, kubeletUnregisteredWorld, I2},
		{effectDeclaredUID, declareWorld, I2},
		{effectCollectCAS, collectWorld, I3},
		{effectCollectFenced, collectWorld, I3},
		{effectTouched, rebootWorld, I5},
		{effectAskAgain, rebootWorld, I4},
		{effectRecorded, rebootWorld, I8},
		{effectSession, restoreExclusiveWorld, I2},
		{effectRestates, restoreWorld, I2},
		{effectNewNumber, restoreExclusiveWorld, I3},
		{effectListensAgain, restoreWorld, I2},
		{effectHeardLive, restoreWorld, I2},
		{effectExcuseOfThis, restoreExcusedWorld, I3},
		{effectEvidenceOfNow, restoreAssertWorld, I9},
		{effectDeclared, machineWorld, I5},
		{effectOrderLease, assertWorld, I9},
		{effectSessionWrites, assertWorld, I9},
		{effectRecordKept, assertWorld, I9},
		{effectSessionVoids, assertWorld, I9},
		{effectCutLive, cutWorld, I9},
		{effectCutOrder, cutWorld, I9},
		{effectCutMachine, cutMachineWorld, I5},
		{effectCutAgain, cutWorld, I2},
		{effectCutDelete, cutWorld, I2},
		{effectCutConfirm, cutExclusiveWorld, I3},
		{effectUnheardCAS, agentlessRestoreWorld, I6},
	} {
		t.Run(string(test.effect), func(t *testing.T) {
			t.Parallel()
			expectBroken(t, newModel(test.world, GuardNone, test.effect), test.want)
		})
	}
}

// bound keeps the memory of one exploration below some 1 GiB, and shortBound the time of one in a short run.
const (
	bound      = 2_000_000
	shortBound = 20_000
)

// exploreAll explores until an invariant is broken or every state is known.
func exploreAll(t *testing.T, m *model) (*exploration, *violation) {
	t.Helper()
	most := bound
	if testing.Short() {
		most = shortBound
	}
	e, v, err := m.explore(most)
	if err != nil && testing.Short() {
		leaveOut(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v == nil {
		v = e.trapped()
	}
	return e, v
}

func leaveOut(t *testing.T) {
	t.Helper()
	summary.Lock()
	summary.leftOut++
	summary.Unlock()
	t.Skipf("explored to %d states only, in a short run", shortBound)
}

// expectBroken: without its guard, the exploration must come upon a state where the invariant does not hold.
func expectBroken(t *testing.T, m *model, want Invariant) {
	t.Helper()
	left := string(m.rules.without) + string(m.without)
	e, v := exploreAll(t, m)
	switch {
	case v == nil:
		t.Fatalf("without %q nothing is broken in %d states, want %s broken: the guard is not needed or the model too small",
			left, len(e.states), want)
	case v.invariant != want:
		t.Fatalf("without %q: want %s, got %s", left, want, v)
	}
	report(t, "without %-40q %s (%d acts)", left, v.invariant, len(v.trace))
	t.Logf("without %q, %s", left, v)
}
