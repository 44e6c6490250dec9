/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
)

// reconcile brings one volume as far as it can go now, and reports.
func (a *Agent) reconcile(ctx context.Context, name string) (time.Duration, error) {
	v := a.volume(name)
	v.ApplyChanges(a.Clock.Now())
	defer a.finish(v)
	tried := map[plan.Step]bool{}
	for {
		f, err := a.gather(ctx, v)
		if err != nil {
			return 0, err
		}
		a.reportLostMounts(ctx, v, f)
		a.steps.AnnounceSick(v, f)
		a.steps.TakeHealth(v, f)
		v.Phases.Observe(f, a.Clock.Now())
		next, ok := v.Next(f, tried, a.Clock.Now())
		if !ok {
			return v.RequeueAfter(f, tried, a.Clock.Now()), a.report(ctx, v, f)
		}
		tried[next] = true
		if operation.ReportsFirst(next) {
			if err := a.report(ctx, v, f); err != nil {
				return 0, err
			}
		}
		a.steps.LogStep(v, f, next)
		err = a.steps.Run(ctx, v, f, next)
		if ctx.Err() != nil || errors.Is(err, operation.ErrStopped) {
			return 0, err
		}
		if err := a.steps.Finish(v, f, next, err); err != nil {
			return 0, errors.Join(err, a.report(ctx, v, f))
		}
	}
}

// finish writes what is known at the end of a reconcile to the disk, and to the copies that are compared with the mount
// table.
func (a *Agent) finish(v *operation.Volume) {
	v.UpdateAwaits()
	if v.Record == nil {
		a.views.Delete(v.Name)
		a.forgetVolume(v)
		return
	}
	a.views.Store(v.Name, v.Record.Copy())
	a.plugin.notify(v.Record)
	if err := a.steps.WriteRecord(v); err != nil {
		// The disk says less than is known now, which is safe, and the next call will not be made without it.
		a.Log.Error(err, "record not brought up to date", "volume", v.Name)
	}
}

// forgetVolume drops what is kept of a volume that nothing is left to know about. A goroutine that still has v loses no
// more than the note of a change.
func (a *Agent) forgetVolume(v *operation.Volume) {
	if len(v.Failures) > 0 || v.HangingCall() != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.volumes[v.Name] == v {
		delete(a.volumes, v.Name)
		a.Calls.Forget(v.Name)
	}
}
