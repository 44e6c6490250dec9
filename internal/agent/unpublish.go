/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var unpublishStep = step{
	operation: "unpublish", event: eventFailedUnmount, logged: true, supersedes: []verb{doPublish}, endsUse: true,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, intent types.UID) error {
		return e.unpublisher().unpublish(ctx, v, f, intent)
	},
}

// unpublisher undoes publications.
type unpublisher struct{ *Environment }

// unpublish undoes one publication and forgets the use, or what of it is not wanted any more.
func (a unpublisher) unpublish(ctx context.Context, v *volume, f facts, intent types.UID) error {
	u := v.record.use(intent)
	if u.Phase != PhaseNone {
		if err := a.undoPublication(ctx, v, f, u); err != nil {
			return err
		}
	}
	v.unsaved = true
	if i := f.intent(intent); f.stale() || i == nil || f.gone(*u) {
		v.record.drop(intent)
		return nil
	}
	*u = Use{Intent: u.Intent, Want: volumesv1alpha1.DesiredStaged}
	return nil
}

func (a unpublisher) undoPublication(ctx context.Context, v *volume, f facts, u *Use) error {
	if there := f.uses[u.Intent.UID]; there == foreign || there == present && u.BootID != f.now.bootID {
		return problemf(volumesv1alpha1.ReasonPathOccupied, "another mount stands over %s; it is left alone until somebody removes it", u.Path)
	}
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	if err := a.seeDevice(ctx, v, u.Path); err != nil {
		return err
	}
	u.Phase = PhaseUncertain
	if err := a.undoOwn(ctx, v, u); err != nil {
		return err
	}
	req := driver.UnpublishRequest{Handle: v.record.Handle, Mode: v.record.Mode, TargetPath: u.Target}
	err = a.call(ctx, v, f, "unpublish", u.Target, func(ctx context.Context) error { return d.Unpublish(ctx, req) })
	if err != nil && !driver.IsNotFound(err) {
		return err
	}
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	if left := table.All(u.Target); len(left) > 0 {
		return problemf(volumesv1alpha1.ReasonUnpublishFailed, "the driver reports success, but %s is still mounted at %s", left[0].Source, u.Target)
	}
	// Drivers should remove the target; not all do. What is not empty is not ours to remove.
	if err := a.Mounts.RemoveMountPoint(ctx, u.Target); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing published path: %w", err)
	}
	if err := a.stillMounting(v, f); err != nil {
		return err
	}
	if err := a.allowWrites(ctx, v, f, u); err != nil {
		return err
	}
	u.Phase, u.Source, u.Device = PhaseNone, "", ""
	return nil
}

// undoOwn takes away what the agent itself has bound on top of the driver's publication. The disk knows of it
// before, so that after a crash the rest is taken away too.
func (a unpublisher) undoOwn(ctx context.Context, v *volume, u *Use) error {
	if u.Bound == "" && u.Target == u.Path {
		return nil
	}
	if err := a.save(v); err != nil {
		return err
	}
	if err := a.unbind(ctx, u); err != nil || u.Target == u.Path {
		return err
	}
	if err := a.removeMount(ctx, u.Path); err != nil {
		return fmt.Errorf("removing published path: %w", err)
	}
	return nil
}
