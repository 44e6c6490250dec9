/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	testclock "k8s.io/utils/clock/testing"
)

func TestCallsThatDoNotReturnAreCountedWithTheirAge(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Now())
	calls := NewCalls(clock)
	want := func(when, inFlight, hung, oldest string) {
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
		if err := testutil.CollectAndCompare(calls, strings.NewReader(text)); err != nil {
			t.Errorf("calls of slow.example.com %s: %v", when, err)
		}
	}
	first := calls.Begin("slow.example.com")
	clock.SetTime(clock.Now().Add(2 * time.Minute))
	second := calls.Begin("slow.example.com")
	first.Hangs()
	clock.SetTime(clock.Now().Add(time.Minute))
	want("with one that hangs", "2", "1", "180")
	first.End()
	want("once that has returned", "1", "0", "60")
	second.End()
	want("once all have returned", "0", "0", "0")
}

func TestCallsThatAreNotMeasuredCostNothing(t *testing.T) {
	var none *Calls
	call := none.Begin("any.example.com")
	call.Hangs()
	call.End()
	if call != nil {
		t.Errorf("call of no Calls: %v, want none", call)
	}
}
