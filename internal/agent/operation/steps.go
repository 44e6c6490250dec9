/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package operation carries out the steps of a plan, one file for each. A step is a row of the table steps: the
// operation that users see, the event, the precondition, what its success makes pointless, and the function that runs
// it.
//
// A new step takes a kind in package plan, which also decides when it is due, a file here, and its row in steps. Work
// that may take hours runs as longWork.
package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// step is what can be done for a volume, as a row of the table of steps. Its run is in the step's own file.
type step struct {
	// operation is the name that users see in lastError.
	operation string
	// event is the reason of the event about a failure.
	event string
	// logged: it changes a mount, so its beginning is always logged.
	logged bool
	// session: it waits until the manager has confirmed the agent's session.
	session bool
	// reportFirst: it may take long, and intents that only use the volume do not wait for it.
	reportFirst bool
	// perIntent: it is done for each intent that uses the volume.
	perIntent bool
	// seeded: the attempts that an earlier process reported count on.
	seeded bool
	// follows are the steps whose success leads to it: its failures are kept while one of them is planned.
	follows []plan.Kind
	// inputs beside the intent and the entry: a change of them is tried at once. May be nil.
	inputs func(f plan.Facts) string
	// supersedes are the steps whose failures its success makes pointless, for the same intent.
	supersedes []plan.Kind
	// endsUse: its success ends a use that other intents may wait for.
	endsUse bool
	// run does the step once. It may be repeated after any failure, and after a crash.
	run func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, intent types.UID) error
}

// steps are what a plan can ask for.
var steps = map[plan.Kind]step{
	plan.MarkInUse:       markInUseStep,
	plan.Join:            joinStep,
	plan.Stage:           stageStep,
	plan.Remount:         remountStep,
	plan.Reference:       referenceStep,
	plan.Publish:         publishStep,
	plan.SetOwnership:    setOwnershipStep,
	plan.Expand:          expandStep,
	plan.Unpublish:       unpublishStep,
	plan.Unstage:         unstageStep,
	plan.Dereference:     dereferenceStep,
	plan.Shutdown:        shutdownStep,
	plan.ShutdownKubelet: shutdownKubeletStep,
	plan.ClearInUse:      clearInUseStep,
	plan.Persist:         persistStep,
}

// ReportsFirst reports whether the step may take long, so that what is known before it has to be reported.
func ReportsFirst(a plan.Step) bool { return steps[a.Kind].reportFirst }

// Run runs the step that is next.
func (env *Environment) Run(ctx context.Context, v *Volume, f plan.Facts, next plan.Step) error {
	s, known := steps[next.Kind]
	if !known {
		return fmt.Errorf("step %q is not known", next.Kind)
	}
	v.stillNext = env.stillNext(v, f, next)
	return s.run(ctx, env, v, f, next.Intent)
}

// Finish notes how a step ended. It returns an error only when the API server did not take what was to be written: that
// cannot be reported in the API either, and the queue retries it.
func (env *Environment) Finish(v *Volume, f plan.Facts, done plan.Step, err error) error {
	var unwritten *report.UnwrittenError
	switch {
	case err == nil:
		v.succeeded(done)
		v.measure(done, env.Clock.Now())
		return nil
	case errors.Is(err, failure.ErrChanged):
		return nil
	case errors.As(err, &unwritten):
		return err
	}
	v.Failures[done] = failure.New(v.Failures[done], steps[done.Kind].operation, inputs(f, done), err, env.Clock.Now())
	env.announceFailure(v, f, done, v.Failures[done])
	return nil
}

// measure ends the phase that the step has completed. A publication may take several steps.
func (v *Volume) measure(done plan.Step, now time.Time) {
	if v.Record == nil {
		return
	}
	u := v.Record.UseOf(done.Intent)
	switch {
	case u != nil && u.Phase == record.PhaseDone:
		done.Kind = plan.Publish
	case done.Kind == plan.Publish:
		return
	}
	v.Phases.Done(v.Record.Driver, done, now)
}

// succeeded drops the failures that a success has made pointless.
func (v *Volume) succeeded(done plan.Step) {
	delete(v.Failures, done)
	for _, superseded := range steps[done.Kind].supersedes {
		delete(v.Failures, plan.Step{Kind: superseded, Intent: done.Intent})
	}
	if steps[done.Kind].endsUse {
		maps.DeleteFunc(v.Failures, func(_ plan.Step, f *failure.Failure) bool { return f.AwaitsOtherUse() })
	}
}
