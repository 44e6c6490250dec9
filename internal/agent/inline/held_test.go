/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	hawserstatus "github.com/hawser-io/hawser/internal/status"
)

func TestTheEndOfAProcessShortensAWaitOnceUntilItWouldHaveEnded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	h := &holds{clock: clock, at: map[string]*hold{}}
	var wait time.Duration
	for range 5 {
		wait = h.delay("db")
	}
	h.retryNow("db")
	if got := h.wait("db"); got != hawserstatus.FirstBackoff {
		t.Errorf("wait after the end of a process: %s, want %s", got, hawserstatus.FirstBackoff)
	}
	clock.Step(hawserstatus.FirstBackoff)
	longer := h.delay("db")
	h.retryNow("db")
	if got := h.wait("db"); got != longer || longer <= wait {
		t.Errorf("wait after the end of the next process: %s, want the backoff of %s", got, longer)
	}
	clock.Step(wait)
	h.retryNow("db")
	if got := h.wait("db"); got != hawserstatus.FirstBackoff {
		t.Errorf("wait after the end of a process in the next interval: %s, want %s", got, hawserstatus.FirstBackoff)
	}
	h.forget("db")
	if got := h.wait("db"); got != 0 {
		t.Errorf("wait of a place that nothing holds: %s, want none", got)
	}
}

func TestACauseIsNewsOnceAndDelaysNothing(t *testing.T) {
	h := &holds{clock: clocktesting.NewFakeClock(time.Now()), at: map[string]*hold{}}
	for _, c := range []struct {
		because string
		news    bool
	}{{"process 1", true}, {"process 1", false}, {"process 2", true}, {"process 1", true}} {
		if got := h.news("db", c.because); got != c.news {
			t.Errorf("cause %s is news: %t, want %t", c.because, got, c.news)
		}
	}
	if got := h.wait("db"); got != 0 {
		t.Errorf("wait of a place after a cause without a time: %s, want none", got)
	}
}
