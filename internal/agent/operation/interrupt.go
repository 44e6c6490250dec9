/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
)

// progressInterval between two reports of work that goes on.
const progressInterval = 10 * time.Second

// stillNext returns what finds out from newer facts whether the step is still the one to run. A step that comes before
// it in the plan and did not help when it began does not count.
func (env *Environment) stillNext(v *Volume, began plan.Facts, s plan.Step) func(plan.Facts) bool {
	tried, now := map[plan.Step]bool{}, env.Clock.Now()
	for next, ok := v.Next(began, tried, now); ok && next != s; next, ok = v.Next(began, tried, now) {
		tried[next] = true
	}
	return func(f plan.Facts) bool {
		next, ok := v.Next(f, tried, env.Clock.Now())
		return ok && next == s
	}
}

// longWork is the part of a step that may take hours: it reports how far it is, and ends early when something else is
// to be done for the volume first. Then the next reconcile runs the step again, if it is still planned.
type longWork struct {
	*Environment
	volume *Volume
	// name of the work, for errors and logs.
	name string
	// describe is what the intents' status reports while it goes on.
	describe func() string
}

// run does the work until it ends. do has to return soon after its context has ended. The error is failure.ErrChanged
// if the work was ended early.
func (w longWork) run(ctx context.Context, do func(context.Context) error) error {
	working, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- recoverPanic(working, do) }()
	report := w.Clock.NewTimer(slowCall)
	defer report.Stop()
	defer func() { w.volume.slow = "" }()
	for {
		var goesOn bool
		select {
		case err := <-done:
			if err != nil && working.Err() != nil && ctx.Err() == nil {
				return fmt.Errorf("%s of volume %s was interrupted: %w", w.name, w.volume.Name, failure.ErrChanged)
			}
			return err
		case <-w.volume.requeued:
			goesOn = w.examine(ctx, false)
		case <-report.C():
			goesOn = w.examine(ctx, true)
			report.Reset(progressInterval)
		}
		if !goesOn {
			end()
		}
	}
}

// examine reports how far the work is, if asked to. It returns false if something else is to be done first.
func (w longWork) examine(ctx context.Context, report bool) bool {
	f, err := w.Gather(ctx, w.volume)
	if err != nil {
		w.Log.Info("not known whether something else is to be done first", "volume", w.volume.Name, "work", w.name,
			"error", err.Error())
		return true
	}
	if !w.volume.stillNext(f) {
		return false
	}
	if !report {
		return true
	}
	w.volume.slow = w.describe()
	w.Inform(w.volume, f)
	if err := w.ReportIntents(ctx, w.volume, f); err != nil {
		w.Log.Info("progress not reported", "volume", w.volume.Name, "work", w.name, "error", err.Error())
	}
	return true
}
