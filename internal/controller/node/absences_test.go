/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

func TestOnlyWatchedAbsenceCounts(t *testing.T) {
	const plan = time.Hour
	start := time.Now()
	type step struct {
		// after the start something happens: a look with this last word, unless it is one of the two others.
		after              time.Duration
		word               string
		missed, registered bool
		want               time.Duration
	}
	for _, test := range []struct {
		name       string
		checkpoint *volumesv1alpha1.GoneObservation
		steps      []step
	}{
		{"two looks in time", nil, []step{{after: 0}, {after: plan, want: plan}, {after: 2 * plan, want: 2 * plan}}},
		{"who comes late has watched one plan", nil, []step{{after: 0}, {after: 9 * plan, want: plan}}},
		{"a clock that goes back takes nothing off", nil, []step{{after: plan}, {after: 0}, {after: plan, want: plan}}},
		{"an agent that is heard voids it", nil, []step{{after: 0, word: "a"}, {after: plan, word: "a", want: plan},
			{after: 2 * plan, word: "b"}, {after: 3 * plan, word: "b", want: plan}}},
		{"a look that failed ends a stretch", nil,
			[]step{{after: 0}, {after: plan, want: plan}, {after: plan, missed: true}, {after: 2 * plan, want: plan}}},
		{"a Node that registered for a moment voids it", nil,
			[]step{{after: 0}, {after: plan, want: plan}, {after: plan, registered: true}, {after: 2 * plan}}},
		{"what an earlier process watched goes on",
			&volumesv1alpha1.GoneObservation{LastRenewal: "a", Observed: metav1.Duration{Duration: 3 * plan}},
			[]step{{after: 0, word: "a", want: 3 * plan}, {after: plan, word: "a", want: 4 * plan}}},
		{"what it watched of another silence does not",
			&volumesv1alpha1.GoneObservation{LastRenewal: "a", Observed: metav1.Duration{Duration: 3 * plan}},
			[]step{{after: 0, word: "b"}}},
		{"nor what it watched before the Node registered",
			&volumesv1alpha1.GoneObservation{Observed: metav1.Duration{Duration: 3 * plan}},
			[]step{{registered: true}, {after: 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var a absences
			for i, s := range test.steps {
				switch {
				case s.missed:
					a.missed("n")
				case s.registered:
					a.registered("n")
				default:
					got := a.look("n", s.word, test.checkpoint, plan, start.Add(s.after))
					if got.Observed.Duration != s.want || got.LastRenewal != s.word {
						t.Errorf("absence of node n after step %d: %v, want %s after sign %q", i, got, s.want, s.word)
					}
				}
			}
		})
	}
}

func TestAWallClockThatJumpsNeitherAddsToAnAbsenceNorTakesFromIt(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			const plan = time.Hour
			var a absences
			start := time.Now()
			a.look("n", "", nil, plan, start)
			jumped := controllertest.Jump(t, start.Add(plan/2), by)
			if due := a.due("n", plan, jumped); due != plan/2 {
				t.Errorf("next check of node n is due in %s, want %s", due, plan/2)
			}
			if got := a.look("n", "", nil, plan, jumped); got.Observed.Duration != plan/2 {
				t.Errorf("absence measured of node n: %s, want %s", got.Observed.Duration, plan/2)
			}
			back := controllertest.Jump(t, jumped.Add(plan/2), -by)
			if got := a.look("n", "", nil, plan, back); got.Observed.Duration != plan {
				t.Errorf("absence measured of node n: %s, want %s", got.Observed.Duration, plan)
			}
		})
	}
}

func TestTheNextCheckIsDueAfterAPeriodOrAtOnceAfterAFailure(t *testing.T) {
	var a absences
	now := time.Now()
	if due := a.due("n", time.Hour, now); due != 0 {
		t.Errorf("first check of node n is due in %s, want 0s", due)
	}
	a.look("n", "", nil, time.Hour, now)
	if due := a.due("n", time.Hour, now.Add(time.Minute)); due != 59*time.Minute {
		t.Errorf("next check of node n is due in %s, want 59m", due)
	}
	a.missed("n")
	if due := a.due("n", time.Hour, now.Add(time.Minute)); due != 0 {
		t.Errorf("check of node n after one that failed is due in %s, want 0s", due)
	}
}

func TestWhatIsWatchedOfOneNodeLeavesTheOthersAlone(t *testing.T) {
	var a absences
	now := time.Now()
	a.look("n", "", nil, time.Hour, now)
	a.look("other", "", nil, time.Hour, now)
	a.registered("new")
	if got := a.look("n", "", nil, time.Hour, now.Add(time.Hour)); got.Observed.Duration != time.Hour {
		t.Errorf("absence measured of node n: %s, want 1h", got.Observed.Duration)
	}
	a.forget("other")
	if got := a.look("n", "", nil, time.Hour, now.Add(2*time.Hour)); got.Observed.Duration != 2*time.Hour {
		t.Errorf("absence measured of node n after node other was forgotten: %s, want 2h", got.Observed.Duration)
	}
}
