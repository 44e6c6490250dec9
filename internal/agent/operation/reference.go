/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

var referenceStep = step{
	operation: "stage", event: eventFailedMount,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.referencer().create(ctx, v, f)
	},
}

var dereferenceStep = step{
	operation: "unstage", event: eventFailedUnmount,
	run: func(ctx context.Context, env *Environment, v *Volume, _ plan.Facts, _ types.UID) error {
		return env.referencer().remove(ctx, v)
	},
}

// referencer shows the kubelet that the agent uses a stage, and takes that away.
type referencer struct{ *Environment }

// create keeps the kubelet from unstaging: by a bind mount of the stage under the agent's own root or, for Block, by
// device nodes.
func (op referencer) create(ctx context.Context, v *Volume, f plan.Facts) error {
	if v.Record.Block() {
		return op.createForDevice(ctx, v)
	}
	path := op.Paths.Reference(v.Name)
	if f.Reference == record.Foreign { // of an earlier stage, or of a bare staging path
		if err := op.remove(ctx, v); err != nil {
			return err
		}
	}
	if err := op.Mounts.EnsureDir(ctx, path, OwnDirMode); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	if err := op.Mounts.Bind(ctx, v.Record.Stage.Path, path, false, nil); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	op.Step("after reference")
	return nil
}

// createForDevice makes a device node for each use where the kubelet finds a device's users. Only the type of these
// directory entries counts there: a bind would show as the file beneath it (kubernetes#123119).
func (op referencer) createForDevice(ctx context.Context, v *Volume) error {
	for i := range v.Record.Uses {
		if err := op.unbind(ctx, &v.Record.Uses[i]); err != nil {
			return err
		}
	}
	if err := op.Persist(v); err != nil { // so that no crash leaves a device node without a record
		return err
	}
	dir := op.Paths.GlobalMap(v.Record.VolumeSource())
	err := op.Mounts.EnsureDir(ctx, dir, sharedDirMode)
	if err == nil {
		err = op.Mounts.SetDeviceNodes(ctx, dir, v.Record.Users())
	}
	if err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed, Err: err,
			Message: "the kubelet cannot see that the volume is in use, and may unstage it when a pod that uses it " +
				"too ends"}
	}
	op.Step("after reference")
	return nil
}

func (op referencer) remove(ctx context.Context, v *Volume) error {
	if v.Record.Block() {
		return op.removeForDevice(ctx, v)
	}
	if err := op.removeMount(ctx, op.Paths.Reference(v.Name)); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	op.Step("after dereference")
	return nil
}

func (op referencer) removeForDevice(ctx context.Context, v *Volume) error {
	dir := op.Paths.GlobalMap(v.Record.VolumeSource())
	if err := op.Mounts.SetDeviceNodes(ctx, dir, nil); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	op.removeEmpty(ctx, dir, filepath.Dir(dir))
	op.Step("after dereference")
	return nil
}
