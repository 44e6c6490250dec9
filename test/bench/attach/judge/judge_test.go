/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package judge

import (
	"testing"
	"time"
)

func TestAVolumeIsThroughOnceAllThingsWereSeen(t *testing.T) {
	r := NewRace(1, 2)
	r.Saw("a", "attachment") // before it began: it belongs to another race
	r.Begin("a")
	r.Saw("a", "attachment")
	r.Saw("a", "attachment")
	if got := r.Result(); got.Through != 0 || got.LeftBehind != 1 {
		t.Errorf("result after one of two things of volume a: %+v, want it left behind", got)
	}
	r.Saw("a", "intent")
	if err := r.Wait(t.Context(), time.Hour, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Result(); got.Through != 1 || got.LeftBehind != 0 || got.PerSecond <= 0 {
		t.Errorf("result after both things of volume a: %+v, want it through", got)
	}
}

func TestVolumesThatNeverGetThroughAreLeftBehind(t *testing.T) {
	r := NewRace(2, 1)
	r.Begin("a")
	r.Begin("b")
	r.Saw("b", "attached")
	if err := r.Wait(t.Context(), time.Millisecond, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Result(); got.Through != 1 || got.LeftBehind != 1 {
		t.Errorf("result with volume a unseen and b seen: %+v, want one through and one left behind", got)
	}
}

func TestPercentilesAreNeverTooLow(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i))
	}
	if got := Of(times); got != (Latency{P50: 50, P90: 90, P99: 99, Max: 100}) {
		t.Errorf("percentiles of 1 to 100: %+v, want 50, 90, 99 and 100", got)
	}
	if got := Of(times[:3]); got != (Latency{P50: 99, P90: 100, P99: 100, Max: 100}) {
		t.Errorf("percentiles of 98 to 100: %+v, want 99, 100, 100 and 100", got)
	}
	if got := Of(nil); got != (Latency{}) {
		t.Errorf("percentiles of no times: %+v, want zeros", got)
	}
}
