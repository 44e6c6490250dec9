/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"slices"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/bench/attach/judge"
)

func asked(user, verb, resource string, code int) request {
	var r request
	r.User.Username, r.Verb, r.ObjectRef.Resource, r.ResponseStatus.Code = user, verb, resource, code
	return r
}

func TestOnlyTheContendersRequestsCountAndEventsSeparately(t *testing.T) {
	var p Phase
	p.count([]request{
		asked("me", "create", "volumeattachments", 201),
		asked("me", "delete", "volumeattachments", 409),
		asked("me", "get", "nodes", 200),
		asked("me", "watch", "nodes", 200),
		asked("me", "create", "events", 201),
		asked("somebody", "create", "pods", 201),
	}, "me", 2)
	if p.WritesPerVolume != 1 || p.ReadsPerVolume != 0.5 || p.EventsPerVolume != 0.5 {
		t.Errorf("requests of me per volume: %.1f writes, %.1f reads, %.1f Events; want 1.0, 0.5, 0.5", p.WritesPerVolume,
			p.ReadsPerVolume, p.EventsPerVolume)
	}
	if len(p.Requests) != 5 {
		t.Errorf("%d sorts of requests, want 5: %+v", len(p.Requests), p.Requests)
	}
	for _, c := range p.Requests {
		if c.Resource == "pods" || c.Failed != (c.Verb == "delete") {
			t.Errorf("counted request %+v, want none of somebody, and the delete alone failed", c)
		}
	}
}

func TestGoalsCompareTheContendersOfTheRun(t *testing.T) {
	turn := func(name string, rate float64, alone time.Duration) Turn {
		return Turn{
			Name: name,
			OneByOne: []Point{{Attach: judge.Latency{P50: alone}}, {Existing: 10, CPU: CPU{Contender: 30}},
				{Existing: 5, CPU: CPU{Contender: 20}}},
			Attach: Phase{Result: judge.Result{PerSecond: rate}},
		}
	}
	r := Report{Turns: []Turn{turn("upstream", 10, 700*time.Millisecond), turn("bare-intents", 200, 0),
		turn("hawser-intents", 100, 50*time.Millisecond)}}
	measured := map[string]string{}
	for _, g := range r.goals() {
		measured[g.what] = g.measured
	}
	for what, want := range map[string]string{
		"attach, intents, against the bare client's rate":             "0.50x",
		"attach, intents, against upstream's with its default limits": "10.00x",
		"attach, intents, against upstream's with its limits lifted":  "",
		"one volume on an idle cluster, attach, intents":              "p50 50 ms, upstream's 700 ms",
		"one change next to 10 volumes against 5, intents":            "attach 0.00x, detach 0.00x, CPU 1.50x",
		"attach, pods, against upstream's with its default limits":    "",
	} {
		if measured[what] != want {
			t.Errorf("measured for goal %q: %q, want %q", what, measured[what], want)
		}
	}
	if !slices.ContainsFunc(r.goals(), func(g goal) bool { return g.wanted == ">= 8x" }) {
		t.Errorf("goals: %+v, want one of >= 8x", r.goals())
	}
}

func TestTheRateOfSeveralRoundsIsTheirMedian(t *testing.T) {
	var r Report
	for i, rate := range []float64{30, 10, 20} {
		r.add(Turn{Name: "other"})
		turn := Turn{Name: "one", Swept: i, Attach: Phase{Result: judge.Result{PerSecond: rate}}}
		if i == 0 {
			turn.OneByOne = []Point{{Existing: 7}}
		}
		r.add(turn)
	}
	one, _ := r.turn("one")
	if len(r.Turns) != 2 || one.Attach.PerSecond != 20 || !slices.Equal(one.AttachRates, []float64{30, 10, 20}) ||
		len(one.OneByOne) != 1 || one.Swept != 3 {
		t.Errorf("turns: %d, rate %.0f of %v, one by one %v, %d swept; want 2, 20 of 30, 10, 20, 1 point, 3 swept",
			len(r.Turns), one.Attach.PerSecond, one.AttachRates, one.OneByOne, one.Swept)
	}
}

func TestContendersUnderThePoliciesReverseTheirOrderEverySecondRound(t *testing.T) {
	b := &bench{}
	names := func(round int) (all []string) {
		for _, c := range b.inTurn(round) {
			all = append(all, c.name)
		}
		return all
	}
	for round, want := range [][]string{
		{"upstream", "upstream-lifted", "bare-intents", "hawser-intents", "bare-pods", "hawser-pods"},
		{"upstream-lifted", "hawser-pods", "bare-pods", "hawser-intents", "bare-intents"},
		{"upstream-lifted", "bare-intents", "hawser-intents", "bare-pods", "hawser-pods"},
	} {
		if got := names(round); !slices.Equal(got, want) {
			t.Errorf("contenders of round %d: %q, want %q", round, got, want)
		}
	}
	b.contenders = "hawser-pods,upstream"
	if got := names(0); !slices.Equal(got, []string{"upstream", "hawser-pods"}) {
		t.Errorf("named contenders: %q, want upstream and hawser-pods", got)
	}
}
