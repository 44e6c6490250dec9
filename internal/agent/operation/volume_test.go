/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"errors"
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/status"
)

// A pod that starts one process after the other, each of which uses the volume for a moment, must not have the agent
// try and write without end.
func TestTheEndsOfAPodsProcessesShortenAWaitOnce(t *testing.T) {
	v, now, step := NewVolume("v"), time.Now(), plan.Step{Kind: plan.Unpublish, Intent: "uid"}
	waits := func() time.Duration { return v.Failures[step].NextAttemptTime.Sub(now) }
	fails := func() {
		err := failure.Problemf(volumesv1alpha1.ReasonUsedByPods, "waiting")
		v.Failures[step] = failure.New(v.Failures[step], "unpublish", "", err, now)
	}
	ends := func() {
		v.NoteChange(HolderEnded)
		v.ApplyChanges(now)
	}
	for range 5 {
		fails()
	}
	ends()
	if got := waits(); got != status.FirstBackoff {
		t.Errorf("wait after the end of a process: %s, want %s", got, status.FirstBackoff)
	}
	now = now.Add(status.FirstBackoff)
	fails()
	ends()
	if got, want := waits(), status.Backoff(6); got != want {
		t.Errorf("wait after the end of the next process: %s, want the backoff of %s", got, want)
	}
	now = now.Add(status.Backoff(5))
	ends()
	if got := waits(); got != status.FirstBackoff {
		t.Errorf("wait after the end of a process in the next interval: %s, want %s", got, status.FirstBackoff)
	}
	v.Failures[step] = failure.New(nil, "unstage", "", &failure.Problem{Reason: volumesv1alpha1.ReasonDeviceHeld,
		Err: errors.New("held")}, now)
	ends()
	if v.Failures[step].NextAttemptTime != nil {
		t.Errorf("next attempt for a device whose holder has ended: %s, want at once", v.Failures[step].NextAttemptTime)
	}
}

// TestAScrapeReadsFiguresWhileAStepRuns fails under the race detector if the two share anything without a lock.
func TestAScrapeReadsFiguresWhileAStepRuns(t *testing.T) {
	v := NewVolume("v")
	want := &report.Figures{}
	v.SetFigures(want)
	scraped := make(chan *report.Figures)
	go func() { scraped <- v.Figures() }()
	v.slow, v.Record, v.Unprotected = "the driver's stage call is going on", &record.Record{}, !v.Unprotected
	if got := <-scraped; got != want {
		t.Errorf("figures of volume v while a step runs: %p, want those that were set, %p", got, want)
	}
}
