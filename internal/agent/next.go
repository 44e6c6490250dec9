/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/hawser-io/hawser/internal/status"
)

// next picks the first act of the plan that need not wait. Nothing is tried twice in one look, so a driver that
// says done and does nothing cannot keep the agent busy.
func (v *volume) next(f facts, tried map[act]bool, now time.Time) (act, bool) {
	for _, a := range plan(f) {
		if !tried[a] && !waitsForConfirmation(f, a) && !v.failures[a].waiting(inputs(f, a), now) {
			return a, true
		}
	}
	return act{}, false
}

// rest is how long until something that waits may be tried; zero when only an event can help.
func (v *volume) rest(f facts, tried map[act]bool, now time.Time) time.Duration {
	var rest time.Duration
	for _, a := range plan(f) {
		d := time.Duration(0)
		switch failed := v.failures[a]; {
		case waitsForConfirmation(f, a): // the confirmation wakes
		case failed != nil && failed.NextAttemptTime != nil:
			d = max(failed.NextAttemptTime.Sub(now), time.Millisecond)
		case failed == nil && tried[a]:
			d = status.FirstBackoff // it succeeded and is to be done again
		}
		if d > 0 && (rest == 0 || d < rest) {
			rest = d
		}
	}
	return rest
}

// inputs name what an attempt is made with, so that a change of it is tried at once.
func inputs(f facts, a act) string {
	var generation int64
	if i := f.intent(a.intent); i != nil {
		generation = i.Generation
	}
	entry, err := json.Marshal(f.entry)
	if err != nil {
		entry = nil // quantities and strings always encode
	}
	inputs := fmt.Sprintf("%d/%s", generation, hash(string(entry)))
	if a.verb == doPublish {
		if holder := f.groupHolder(); holder != nil {
			inputs += fmt.Sprintf("/%s/%d", holder.Intent.UID, *f.group(*holder))
		}
	}
	return inputs
}

// prune drops the failures of what is not planned any more.
func (v *volume) prune(f facts) {
	if f.busy || f.waitsForSession() {
		return
	}
	planned := map[act]bool{}
	for _, a := range plan(f) {
		planned[a] = true
	}
	maps.DeleteFunc(v.failures, func(a act, _ *failure) bool { return !planned[a] && !follows(f.record, a, planned) })
}

// follows: the act will be planned when what is planned before it is done.
func follows(r *Record, a act, planned map[act]bool) bool {
	takes, stages := planned[act{verb: doTake}], planned[act{verb: doStage}]
	switch a.verb {
	case doStage:
		return takes
	case doPublish:
		return (takes || stages) && r != nil && r.use(a.intent) != nil
	}
	return false
}

// waitsForConfirmation reports whether the step waits until the manager has confirmed the session: a record that names the volume as in use may be
// of the time before the volume was forced away, and what the API holds too.
func waitsForConfirmation(f facts, a act) bool { return f.unsettled && steps[a.verb].session }
