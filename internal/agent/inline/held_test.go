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
		wait, _ = h.note("db", "process 1")
	}
	h.hasten("db")
	if got := h.wait("db"); got != hawserstatus.FirstBackoff {
		t.Errorf("wait after the end of a process: %s, want %s", got, hawserstatus.FirstBackoff)
	}
	clock.Step(hawserstatus.FirstBackoff)
	longer, news := h.note("db", "process 2")
	h.hasten("db")
	if got := h.wait("db"); got != longer || longer <= wait || !news {
		t.Errorf("wait after the end of the next process: %s, news %t; want the backoff of %s, and news", got, news, longer)
	}
	clock.Step(wait)
	h.hasten("db")
	if got := h.wait("db"); got != hawserstatus.FirstBackoff {
		t.Errorf("wait after the end of a process in the next interval: %s, want %s", got, hawserstatus.FirstBackoff)
	}
	h.forget("db")
	if got := h.wait("db"); got != 0 {
		t.Errorf("wait of a place that nothing holds: %s, want none", got)
	}
}
