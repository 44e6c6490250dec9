/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package outage

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

var (
	noon  = metav1.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	later = metav1.Date(2026, 1, 2, 12, 5, 0, 0, time.UTC)
)

func since(t metav1.Time) Spell { return Spell{Unready: true, Transition: t} }

func TestOnlyWatchedTimeCounts(t *testing.T) {
	const minute = time.Minute
	// Each step is so long after the one before it.
	type step struct {
		after time.Duration
		do    func(u *Watch, now time.Time)
	}
	look := func(s Spell) func(*Watch, time.Time) {
		return func(u *Watch, now time.Time) { u.Observe("a", s, 0, minute, now) }
	}
	miss := func(u *Watch, _ time.Time) { u.Missed("a") }
	nothing := func(*Watch, time.Time) {}
	for _, c := range []struct {
		name  string
		steps []step
		want  time.Duration
	}{
		{"a node that was never looked at", []step{{0, nothing}}, 0},
		{"the first look counts nothing", []step{{0, look(since(noon))}}, 0},
		{"the time between two looks", []step{{0, look(since(noon))}, {minute, look(since(noon))}}, minute},
		{"the time since the last look, as planned", []step{{0, look(since(noon))}, {40 * time.Second, nothing}},
			40 * time.Second},
		{"who comes late has watched no longer than planned",
			[]step{{0, look(since(noon))}, {time.Hour, look(since(noon))}}, minute},
		{"an outage that a look finds adds nothing", []step{
			{0, look(since(noon))}, {minute, look(since(noon))}, {minute, miss}, {time.Hour, look(since(noon))},
			{30 * time.Second, look(since(noon))},
		}, minute + 30*time.Second},
		{"during an outage nothing goes on",
			[]step{{0, look(since(noon))}, {minute, look(since(noon))}, {0, miss}, {minute, nothing}}, minute},
		{"Ready in between",
			[]step{{0, look(since(noon))}, {minute, look(Spell{})}, {minute, look(since(noon))}, {minute, nothing}}, minute},
		{"Ready in between two looks",
			[]step{{0, look(since(noon))}, {minute, look(since(later))}, {20 * time.Second, nothing}}, 0},
		{"Ready in between, as only the cache saw", []step{
			{0, look(since(noon))}, {minute, func(u *Watch, _ time.Time) { u.Forget("a") }}, {minute, look(since(noon))},
		}, 0},
		{"not Ready in another way, which may hide a moment in which it was", []step{
			{0, look(since(later))}, {minute, look(since(noon))}, {minute, nothing},
		}, minute},
		{"a clock that goes backwards",
			[]step{{0, look(since(noon))}, {-time.Hour, look(since(noon))}, {minute, nothing}}, minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &Watch{}, time.Unix(1_000_000, 0)
			for _, s := range c.steps {
				now = now.Add(s.after)
				s.do(u, now)
			}
			if got := u.Total("a", since(noon), now); got != c.want {
				t.Errorf("time measured of node a: %s, want %s", got, c.want)
			}
			if got := u.Total("b", since(noon), now); got != 0 {
				t.Errorf("time measured of node b, which was never observed: %s, want 0s", got)
			}
		})
	}
}

func TestWhatWasWatchedOfOneSpellDoesNotCountForAnother(t *testing.T) {
	silent := Spell{Absent: true, Heard: "1"}
	for _, c := range []struct {
		name          string
		before, after Spell
		want          time.Duration
	}{
		{"the Node is absent and its agent silent all the time", silent, silent, time.Minute},
		{"the agent was heard again", silent, Spell{Absent: true, Heard: "2"}, 0},
		{"the Node was deleted", since(noon), Spell{Absent: true}, 0},
		{"the Node is there again", Spell{Absent: true}, Spell{Unready: true}, 0},
		{"the Node was Ready in between", since(noon), since(later), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &Watch{}, time.Unix(1_000_000, 0)
			u.Observe("a", c.before, 0, time.Minute, now)
			now = now.Add(time.Minute)
			if got := u.Total("a", c.after, now); got != c.want {
				t.Errorf("time measured of node a before the next check: %s, want %s", got, c.want)
			}
			u.Observe("a", c.after, 0, time.Minute, now)
			if got := u.Total("a", c.after, now); got != c.want {
				t.Errorf("time measured of node a: %s, want %s", got, c.want)
			}
		})
	}
}

func TestANodeWithoutAReadyConditionIsNotWell(t *testing.T) {
	u, now := &Watch{}, time.Unix(1_000_000, 0)
	u.Observe("a", Spell{Unready: true}, 0, time.Minute, now)
	now = now.Add(time.Minute)
	if got := u.Total("a", Spell{Unready: true}, now); got != time.Minute {
		t.Errorf("time measured of node a without a Ready condition: %s, want 1m", got)
	}
}

func TestOfANodeThatIsWellNothingIsKeptAndTheOthersAreLeftAlone(t *testing.T) {
	u, now := &Watch{}, time.Unix(1_000_000, 0)
	u.Observe("a", since(noon), 0, time.Minute, now)
	u.Observe("b", since(noon), 0, time.Minute, now)
	u.Observe("b", Spell{}, 0, time.Minute, now)
	if due := u.Due("b", time.Minute, now); due != 0 {
		t.Errorf("next check of node b, which was Ready, is due in %s, want 0s", due)
	}
	if got := u.Total("a", since(noon), now.Add(time.Minute)); got != time.Minute {
		t.Errorf("time measured of node a: %s, want 1m", got)
	}
}

func TestOnlyANodeThatIsThereAndHasATransitionLeavesACheckpoint(t *testing.T) {
	for name, s := range map[string]Spell{
		"a Node that is well":                  {},
		"a Node that is absent":                {Absent: true, Heard: "1"},
		"an absent Node with a transition":     {Absent: true, Transition: noon},
		"a condition that tells no transition": {Unready: true},
	} {
		u, now := &Watch{}, time.Unix(1_000_000, 0)
		u.Observe("a", s, 0, time.Minute, now)
		u.Observe("a", s, 0, time.Minute, now.Add(time.Minute))
		if got := u.Checkpoint("a"); got != nil {
			t.Errorf("%s: checkpoint %+v, want none", name, got)
		}
	}
}

func TestAProcessContinuesOnlyFromTheCheckpointOfTheSameTransition(t *testing.T) {
	at := func(transition metav1.Time, observed time.Duration) *volumesv1alpha1.UnreadyObservation {
		return &volumesv1alpha1.UnreadyObservation{Transition: transition, Observed: metav1.Duration{Duration: observed}}
	}
	renewed := since(noon)
	renewed.Heard = "1"
	before, begun := &Watch{}, time.Unix(1_000_000, 0)
	before.Observe("a", renewed, 0, time.Minute, begun)
	before.Observe("a", renewed, 0, time.Minute, begun.Add(time.Minute))
	for _, c := range []struct {
		name       string
		checkpoint *volumesv1alpha1.UnreadyObservation
		found      Spell
		want       time.Duration
	}{
		{"the same transition", at(noon, 3*time.Minute), since(noon), 3 * time.Minute},
		{"the same transition, as another clock zone writes it",
			at(metav1.NewTime(noon.In(time.FixedZone("", 7200))), time.Minute), since(noon), time.Minute},
		{"what the process before has left", before.Checkpoint("a"), renewed, time.Minute},
		{"what it has left, of a kubelet that was heard since", before.Checkpoint("a"), since(noon), 0},
		{"a later transition", at(noon, 3*time.Minute), since(later), 0},
		{"an earlier transition, by a clock that was set back", at(later, 3*time.Minute), since(noon), 0},
		{"no checkpoint", nil, since(noon), 0},
		{"a condition without a transition", at(metav1.Time{}, 3*time.Minute), since(metav1.Time{}), 0},
		{"a node that is well", at(noon, 3*time.Minute), Spell{}, 0},
		{"a Node that is absent", at(noon, 3*time.Minute), Spell{Absent: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &Watch{}, time.Unix(1_000_000, 0)
			u.Observe("a", c.found, Carried(c.checkpoint, c.found), time.Minute, now)
			if got := u.Total("a", c.found, now); got != c.want {
				t.Errorf("time of node a continues from %s, want %s", got, c.want)
			}
		})
	}
}

func TestTwoProcessesThatWatchTheSameTimeDoNotAddItUp(t *testing.T) {
	u, now := &Watch{}, time.Unix(1_000_000, 0)
	u.Observe("a", since(noon), 0, time.Minute, now)
	now = now.Add(time.Minute)
	u.Observe("a", since(noon), 50*time.Second, time.Minute, now)
	if got := u.Total("a", since(noon), now); got != time.Minute {
		t.Errorf("time measured of node a by two processes at once: %s, want 1m", got)
	}
	u.Observe("a", since(noon), 5*time.Minute, time.Minute, now)
	if got := u.Checkpoint("a"); got == nil || got.Observed.Duration != 5*time.Minute || !got.Transition.Equal(&noon) {
		t.Errorf("checkpoint of node a: %+v, want 5m since %s", got, noon)
	}
}

func TestACheckIsDueOnceAPeriod(t *testing.T) {
	u, now := &Watch{}, time.Unix(1_000_000, 0)
	if got := u.Due("a", time.Minute, now); got != 0 {
		t.Errorf("first check of node a is due in %s, want 0s", got)
	}
	u.Observe("a", since(noon), 0, time.Minute, now)
	now = now.Add(20 * time.Second)
	if got := u.Due("a", time.Minute, now); got != 40*time.Second {
		t.Errorf("next check of node a is due in %s, want 40s", got)
	}
	// A caller comes that wants reads more often: what was planned for the others would be too long unwatched for it.
	if got := u.Due("a", 30*time.Second, now); got != 10*time.Second {
		t.Errorf("next check of node a for a caller with a shorter period is due in %s, want 10s", got)
	}
	now = now.Add(time.Hour)
	if got := u.Total("a", since(noon), now); got != 30*time.Second {
		t.Errorf("time measured of node a: %s, want 30s", got)
	}
	u.Missed("a")
	if got := u.Due("a", time.Minute, now); got != 0 {
		t.Errorf("check of node a after one that failed is due in %s, want 0s", got)
	}
	for after, want := range map[time.Duration]time.Duration{
		time.Minute: 10 * time.Second, 3 * time.Minute: 30 * time.Second, 6 * time.Minute: time.Minute,
		720 * time.Hour: time.Minute,
	} {
		if got := Period(after); got != want {
			t.Errorf("period of the checks for a force after %s: %s, want %s", after, got, want)
		}
	}
}

func TestAWallClockThatJumpsNeitherForcesNorPreventsForce(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			u := &Watch{}
			u.Observe("a", since(noon), 0, time.Minute, start)
			jumped := controllertest.Jump(t, start.Add(30*time.Second), by)
			if got := u.Total("a", since(noon), jumped); got != 30*time.Second {
				t.Errorf("time measured of node a over a jump of the wall clock: %s, want 30s", got)
			}
			if got := u.Due("a", time.Minute, jumped); got != 30*time.Second {
				t.Errorf("next check of node a after a jump of the wall clock is due in %s, want 30s", got)
			}
		})
	}
}
