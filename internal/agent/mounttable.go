/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/mount"
)

// anyAge is for finding out which mounts have come and gone.
const anyAge = 24 * time.Hour

// watchMounts compares the records with the mount table whenever the kernel reports that it changed. At once it finds
// which mounts have come and gone. What became of the others follows once for all changes of a second.
func (a *Agent) watchMounts(ctx context.Context) {
	var due <-chan time.Time // when the others are compared
	for {
		age := anyAge
		select {
		case <-ctx.Done():
			return
		case <-a.MountChanges:
			if due == nil {
				due = a.Clock.After(mount.Recent)
			}
		case <-due:
			age, due = 0, nil
		}
		if err := a.compareViews(ctx, age); err != nil {
			a.Log.Error(err, "mount table not compared")
		}
		a.observer.MountsChanged() // afterwards: it may be content with what was read for the agent's own volumes
	}
}

func (a *Agent) compareViews(ctx context.Context, age time.Duration) error {
	table, err := a.Mounts.TableWithin(age)
	if err != nil {
		return err
	}
	a.views.Range(func(name, view any) bool {
		r := view.(*record.Record)
		if r == nil {
			return true
		}
		f := plan.Facts{Name: name.(string), Paths: a.paths, Now: a.now(), Record: r}
		f.Compare(table)
		v := a.volume(f.Name)
		if len(f.Lost()) > 0 || v.AwaitsMounts() {
			v.NoteChange(operation.MountsChanged)
			a.queue.add(f.Name)
		}
		if e, ok := table.At(r.Stage.Path); ok && e.Failed() != "" && r.Sick == nil {
			go a.examine(ctx, r)
		}
		return true
	})
	return nil
}

// reportLostMounts reports mounts that another program removed, before they are made again.
func (a *Agent) reportLostMounts(ctx context.Context, v *operation.Volume, f plan.Facts) {
	lost := f.Lost()
	fresh := v.SetLost(lost)
	if !fresh {
		return
	}
	a.Log.Info("mounts were removed by another program", "volume", v.Name, "paths", lost)
	for _, i := range f.Wanting() {
		a.steps.Event(i, corev1.EventTypeWarning, volumesv1alpha1.ReasonMountLost, "Verify",
			"not mounted any more: "+strings.Join(lost, ", "))
	}
	line := report.NewVolumeReport(v.Snapshot(), f)
	if err := a.state.WriteNow(ctx, report.Change{Volume: v.Name, Report: &line}); err != nil {
		a.Log.Error(err, "lost mounts not reported", "volume", v.Name)
	}
}
