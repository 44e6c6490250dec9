/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"time"
)

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
		if reportsFirst(next) {
			if err := a.report(ctx, v, f); err != nil {
				return 0, err
			}
		}
		a.steps.logAct(v, f, next)
		err = a.steps.carryOut(ctx, v, f, next)
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			return 0, err
		}
		if err := a.steps.settle(v, f, next, err); err != nil {
			return 0, errors.Join(err, a.report(ctx, v, f))
		}
	}
}

// leave brings what is known at the end of a look to the disk, and to those who compare it with the mount table.
func (a *Agent) leave(v *volume) {
	v.updateAwaits()
	if v.record == nil {
		a.views.Delete(v.name)
		a.forgetVolume(v)
		return
	}
	a.views.Store(v.name, v.record.copy())
	if err := a.steps.keep(v); err != nil {
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
