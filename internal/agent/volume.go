/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// volume is what this process keeps of one volume between looks. The queue sees to it that one goroutine at a
// time looks at it; what others touch is behind mu.
type volume struct {
	name     string
	record   *Record
	failures map[act]*failure
	// known intents, whose lastError of an earlier process was taken over.
	seeded map[types.UID]bool
	// unprotected: a mount of an attachment that was taken away could not be shut down.
	unprotected bool
	// slow is the operation whose call takes so long that users are told.
	slow string
	// unsaved: uses were ended that the disk still names. Nobody must be told before it knows: whoever is told may let the
	// intent go, and a process that comes after would take the use for an orphan.
	unsaved bool
	// phases are for the metrics only.
	phases phases

	mu     sync.Mutex
	hung   <-chan struct{}
	hungOp string
	nudges map[nudge]bool
	figure *figures
	// reading: the figures are being read.
	reading bool
	// lost are the mounts that were reported as removed by somebody else.
	lost []string
	// awaits: something waits for a change of the mount table.
	awaits bool
	// inherited are the devices of a use of the kubelet that has ended while the agent uses the volume.
	inherited []mount.Device
}

// nudge says what has changed for an act that waits for it.
type nudge string

const (
	nudgeDrivers nudge = "drivers"
	nudgeMounts  nudge = "mounts"
	// nudgeHolder: a process that held the volume's device has ended.
	nudgeHolder nudge = "holder"
)

func newVolume(name string) *volume {
	return &volume{name: name, failures: map[act]*failure{}, seeded: map[types.UID]bool{}, nudges: map[nudge]bool{}}
}

func (v *volume) hangs(finished <-chan struct{}, operation string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hung, v.hungOp = finished, operation
}

// hanging returns the operation whose call ignores its deadline, or "".
func (v *volume) hanging() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hung == nil {
		return ""
	}
	select {
	case <-v.hung:
		v.hung = nil
		return ""
	default:
		return v.hungOp
	}
}

// waitsForMounts says whether a change of the mount table may let something go on.
func (v *volume) waitsForMounts() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.awaits
}

func (v *volume) setLost(paths []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = paths
}

func (v *volume) setFigures(f *figures) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.figure = f
}

// inherit has the agent's own release ask about the devices too.
func (v *volume) inherit(devices []mount.Device) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inherited = append(v.inherited, devices...)
}

// takeInherited moves them to the record, which must be there.
func (v *volume) takeInherited(boot string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.inherited {
		v.record.see(d, boot)
	}
	v.inherited = nil
}

// beginStats says whether no reading of the volume's figures is going on.
func (v *volume) beginStats() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	begun := !v.reading
	v.reading = true
	return begun
}

func (v *volume) endStats() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reading = false
}

func (v *volume) nudge(n nudge) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nudges[n] = true
}

// takeNudges lets the failures that waited for what has changed try again at once.
func (v *volume) takeNudges() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.failures {
		if f.waits && v.nudges[nudgeDrivers] || f.awaitsMounts() && v.nudges[nudgeMounts] || f.awaitsHolder() && v.nudges[nudgeHolder] {
			f.waits, f.NextAttemptTime = false, nil
		}
	}
	clear(v.nudges)
}

// look brings one volume as far as it can go now, and reports.
func (a *Agent) look(ctx context.Context, name string) (time.Duration, error) {
	v := a.volume(name)
	v.takeNudges()
	defer a.leave(v)
	tried := map[act]bool{}
	for {
		f, err := a.gather(ctx, v)
		if err != nil {
			return 0, err
		}
		a.noticeLost(ctx, v, f)
		v.phases.see(f, a.Clock.Now())
		next, ok := v.next(f, tried, a.Clock.Now())
		if !ok {
			return v.rest(f, tried, a.Clock.Now()), a.report(ctx, v, f)
		}
		tried[next] = true
		if next.verb == doExpand {
			// Nobody should wait for it who only wants to use the volume.
			if err := a.report(ctx, v, f); err != nil {
				return 0, err
			}
		}
		a.logAct(v, f, next)
		err = a.carryOut(ctx, v, f, next)
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			return 0, err
		}
		if err := a.settle(v, f, next, err); err != nil {
			return 0, errors.Join(err, a.report(ctx, v, f))
		}
	}
}

// leave brings what is known at the end of a look to the disk, and to those who compare it with the mount table.
func (a *Agent) leave(v *volume) {
	v.mu.Lock()
	v.awaits = false
	for _, f := range v.failures {
		v.awaits = v.awaits || f.awaitsMounts()
	}
	v.mu.Unlock()
	if v.record == nil {
		a.views.Delete(v.name)
		a.forgetVolume(v)
		return
	}
	a.views.Store(v.name, v.record.copy())
	if err := a.keep(v); err != nil {
		// The disk says less than is known now, which is safe, and the next call will not be made without it.
		a.Log.Error(err, "record not brought up to date", "volume", v.name)
	}
}

// forgetVolume drops what is kept of a volume of which nothing is left to know. Whoever still holds v loses no more than a nudge.
func (a *Agent) forgetVolume(v *volume) {
	if len(v.failures) > 0 || v.hanging() != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.volumes[v.name] == v {
		delete(a.volumes, v.name)
	}
}

// next picks the first act of the plan that need not wait. Nothing is tried twice in one look, so a driver that
// says done and does nothing cannot keep the agent busy.
func (v *volume) next(f facts, tried map[act]bool, now time.Time) (act, bool) {
	for _, a := range plan(f) {
		if !tried[a] && !f.holds(a) && !v.failures[a].waiting(inputs(f, a), now) {
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
		case f.holds(a): // the confirmation wakes
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

// settle notes how an act ended. It returns an error only when the API server did not take what was to be written: that
// is nothing to tell in the API, and is tried again by the queue.
func (a *Agent) settle(v *volume, f facts, done act, err error) error {
	var unwritten *unwrittenError
	switch {
	case err == nil:
		v.forget(done)
		if f.record != nil {
			v.phases.done(f.record.Driver, done, a.Clock.Now())
		}
		return nil
	case errors.Is(err, errAgain):
		return nil
	case errors.As(err, &unwritten):
		return err
	}
	v.failures[done] = newFailure(v.failures[done], done, inputs(f, done), err, a.Clock.Now())
	a.announceFailure(v, f, v.failures[done])
	return nil
}

// forget drops the failures that a success has made pointless.
func (v *volume) forget(done act) {
	delete(v.failures, done)
	if done.verb == doUnpublish {
		delete(v.failures, act{verb: doPublish, intent: done.intent})
		maps.DeleteFunc(v.failures, func(_ act, f *failure) bool { return f.awaitsOtherUse() })
	}
	if done.verb == doUnstage {
		delete(v.failures, act{verb: doStage})
		delete(v.failures, act{verb: doShutdown})
		delete(v.failures, act{verb: doExpand})
	}
	if done.verb == doPublish {
		delete(v.failures, act{verb: doUnpublish, intent: done.intent})
	}
	if done.verb == doStage {
		delete(v.failures, act{verb: doUnstage})
		delete(v.failures, act{verb: doClear})
	}
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

func (a *Agent) carryOut(ctx context.Context, v *volume, f facts, next act) error {
	switch next.verb {
	case doTake:
		return a.take(ctx, v, f)
	case doJoin:
		return a.join(ctx, v, f)
	case doStage:
		return a.stage(ctx, v, f)
	case doRefer:
		return a.refer(ctx, v, f)
	case doPublish:
		return a.publish(ctx, v, f, next.intent)
	case doExpand:
		return a.expand(ctx, v, f)
	case doUnpublish:
		return a.unpublish(ctx, v, f, next.intent)
	case doUnstage:
		return a.unstage(ctx, v, f)
	case doUnrefer:
		return a.unrefer(ctx, v)
	case doShutdown:
		return a.shutdown(ctx, v, f)
	case doShutdownKubelet:
		return a.shutdownKubelet(ctx, f)
	case doClear:
		return a.clear(ctx, v, f)
	case doRecord:
		return a.save(v)
	}
	return fmt.Errorf("act %q is not known", next.verb)
}
