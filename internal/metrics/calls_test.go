/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	testclock "k8s.io/utils/clock/testing"
)

func TestCallsThatDoNotReturnAreCountedWithTheirAge(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Now())
	calls := NewCalls(clock)
	want := func(when, inFlight, hung, oldest, unanswered string) {
		t.Helper()
		text := `
# HELP hawser_driver_calls_in_flight Calls to the node plugin of a driver that have not returned.
# TYPE hawser_driver_calls_in_flight gauge
hawser_driver_calls_in_flight{driver="slow.example.com"} ` + inFlight + `
# HELP hawser_hung_driver_calls Calls to the node plugin of a driver that ignore their deadline. ` +
			`Their volumes wait until they return.
# TYPE hawser_hung_driver_calls gauge
hawser_hung_driver_calls{driver="slow.example.com"} ` + hung + `
# HELP hawser_oldest_driver_call_seconds Age of the oldest call to the node plugin of a driver that has not ` +
			`returned, in seconds; 0 if there is none.
# TYPE hawser_oldest_driver_call_seconds gauge
hawser_oldest_driver_call_seconds{driver="slow.example.com"} ` + oldest + "\n"
		text += "# HELP hawser_unanswered_driver_seconds " + helpOf(t, unansweredCalls) + `
# TYPE hawser_unanswered_driver_seconds gauge
hawser_unanswered_driver_seconds{driver="slow.example.com"} ` + unanswered + "\n"
		if err := testutil.CollectAndCompare(calls, strings.NewReader(text)); err != nil {
			t.Errorf("calls of slow.example.com %s: %v", when, err)
		}
	}
	first := calls.Begin("slow.example.com", "a")
	clock.SetTime(clock.Now().Add(2 * time.Minute))
	second := calls.Begin("slow.example.com", "b")
	first.Hangs()
	clock.SetTime(clock.Now().Add(time.Minute))
	want("with one that hangs", "2", "1", "180", "180")
	first.End(Answered)
	want("once that has returned", "1", "0", "60", "0")
	second.End(Answered)
	want("once all have returned", "0", "0", "0", "0")
}

func TestCallsThatAreNotMeasuredCostNothing(t *testing.T) {
	var none *Calls
	call := none.Begin("any.example.com", "a")
	call.Hangs()
	call.End(Unanswered)
	none.Forget("a")
	if call != nil {
		t.Errorf("call of no Calls: %v, want none", call)
	}
}

// helpOf is the help in the description.
func helpOf(t *testing.T, desc *prometheus.Desc) string {
	t.Helper()
	_, rest, _ := strings.Cut(desc.String(), `help: "`)
	help, _, found := strings.Cut(rest, `", `)
	if !found {
		t.Fatalf("help of %s: none, want one", desc)
	}
	return help
}

func TestADriverThatAnswersNoneOfConsecutiveCallsHasNotAnsweredSinceTheFirst(t *testing.T) {
	start := time.Now()
	clock := testclock.NewFakePassiveClock(start)
	calls := NewCalls(clock)
	// each call takes two minutes, and the next one begins one minute later.
	call := func(volume string, answer Answer) {
		c := calls.Begin("slow.example.com", volume)
		clock.SetTime(clock.Now().Add(2 * time.Minute))
		c.End(answer)
		clock.SetTime(clock.Now().Add(time.Minute))
	}
	for _, step := range []struct {
		name, volume string
		answer       Answer
		want         float64
	}{
		{"a call that was answered", "a", Answered, 0},
		{"a call that ended at its deadline", "a", Unanswered, 180},
		{"another one for the same volume", "a", Unanswered, 360},
		{"a call for another volume that was answered", "b", Answered, 540},
		{"a call that found no driver", "a", Undecided, 720},
		{"a call for another volume that ended at its deadline", "b", Unanswered, 900},
		{"a call for the first volume that was answered", "a", Answered, 360},
		{"a call for the other volume that was answered", "b", Answered, 0},
		{"one more that ended at its deadline", "c", Unanswered, 180},
	} {
		call(step.volume, step.answer)
		expectUnanswered(t, calls, "after "+step.name, step.want)
	}
	calls.Forget("c")
	expectUnanswered(t, calls, "after the volume was forgotten", 0)
}

func expectUnanswered(t *testing.T, calls *Calls, when string, want float64) {
	t.Helper()
	metrics := make(chan prometheus.Metric, 8)
	calls.Collect(metrics)
	close(metrics)
	for m := range metrics {
		if m.Desc() != unansweredCalls {
			continue
		}
		out := &dto.Metric{}
		if err := m.Write(out); err != nil {
			t.Fatal(err)
		}
		if got := out.GetGauge().GetValue(); got != want {
			t.Errorf("seconds without an answer of slow.example.com %s: %v, want %v", when, got, want)
		}
		return
	}
	t.Errorf("series %s %s: none, want one", unansweredCalls, when)
}
