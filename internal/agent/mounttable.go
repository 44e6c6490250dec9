/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// watchMounts compares the records with the mount table whenever the kernel says that it changed.
func (a *Agent) watchMounts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.MountChanges:
		}
		a.observer.mountsChanged()
		table, err := a.Mounts.Table()
		if err != nil {
			a.Log.Error(err, "mount table not compared")
			continue
		}
		a.views.Range(func(name, view any) bool {
			r := view.(*Record)
			if r == nil {
				return true
			}
			f := facts{name: name.(string), paths: a.paths, now: a.now(), record: r}
			f.compare(table)
			v := a.volume(f.name)
			if len(f.lost()) > 0 || v.waitsForMounts() {
				v.nudge(nudgeMounts)
				a.queue.volume(f.name)
			}
			return true
		})
	}
}

// noticeLost tells of mounts that somebody else removed, before they are put back.
func (a *Agent) noticeLost(ctx context.Context, v *volume, f facts) {
	lost := f.lost()
	fresh := v.setLost(lost)
	if !fresh {
		return
	}
	a.Log.Info("mounts were removed by somebody else", "volume", v.name, "paths", lost)
	for _, i := range f.wanting() {
		a.steps.event(i, corev1.EventTypeWarning, volumesv1alpha1.ReasonMountLost, "Verify", "not mounted any more: "+strings.Join(lost, ", "))
	}
	line := lineOf(v.snapshot(), f)
	if err := a.state.urgent(ctx, change{volume: v.name, report: &line}); err != nil {
		a.Log.Error(err, "lost mounts not reported", "volume", v.name)
	}
}
