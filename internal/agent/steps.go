/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
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
	// supersedes are the steps whose failures its success makes pointless, for the same intent.
	supersedes []verb
	// endsUse: its success ends a use that other intents may wait for.
	endsUse bool
	// run does the step once. It may be repeated after any failure, and after a crash.
	run func(ctx context.Context, e *Environment, v *volume, f facts, intent types.UID) error
}

// steps are what a plan can ask for.
var steps = map[verb]step{
	doTake:            takeStep,
	doJoin:            joinStep,
	doStage:           stageStep,
	doRefer:           referStep,
	doPublish:         publishStep,
	doExpand:          expandStep,
	doUnpublish:       unpublishStep,
	doUnstage:         unstageStep,
	doUnrefer:         unreferStep,
	doShutdown:        shutdownStep,
	doShutdownKubelet: shutdownKubeletStep,
	doClear:           clearStep,
	doRecord:          recordStep,
}

// reportsFirst reports whether the step may take long, so that what is known before it has to be reported.
func reportsFirst(a act) bool { return steps[a.verb].reportFirst }

// carryOut runs the step that is next.
func (e *Environment) carryOut(ctx context.Context, v *volume, f facts, next act) error {
	s, known := steps[next.verb]
	if !known {
		return fmt.Errorf("step %q is not known", next.verb)
	}
	return s.run(ctx, e, v, f, next.intent)
}

// settle notes how a step ended. It returns an error only when the API server did not take what was to be written: that
// is nothing to tell in the API, and is tried again by the queue.
func (e *Environment) settle(v *volume, f facts, done act, err error) error {
	var unwritten *unwrittenError
	switch {
	case err == nil:
		v.succeeded(done)
		if f.record != nil {
			v.phases.done(f.record.Driver, done, e.Clock.Now())
		}
		return nil
	case errors.Is(err, errAgain):
		return nil
	case errors.As(err, &unwritten):
		return err
	}
	v.failures[done] = newFailure(v.failures[done], steps[done.verb].operation, inputs(f, done), err, e.Clock.Now())
	e.announceFailure(v, f, done, v.failures[done])
	return nil
}

// succeeded drops the failures that a success has made pointless.
func (v *volume) succeeded(done act) {
	delete(v.failures, done)
	for _, superseded := range steps[done.verb].supersedes {
		delete(v.failures, act{verb: superseded, intent: done.intent})
	}
	if steps[done.verb].endsUse {
		maps.DeleteFunc(v.failures, func(_ act, f *failure) bool { return f.awaitsOtherUse() })
	}
}
