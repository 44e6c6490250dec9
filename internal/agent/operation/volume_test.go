/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"testing"

	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

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
