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
		return env.createReference(ctx, v, f)
	},
}

var dereferenceStep = step{
	operation: "unstage", event: eventFailedUnmount,
	run: func(ctx context.Context, env *Environment, v *Volume, _ plan.Facts, _ types.UID) error {
		return env.removeReference(ctx, v)
	},
}

// createReference keeps the kubelet from unstaging: by a bind mount of the stage under the agent's own root or, for
// Block, by device nodes.
func (env *Environment) createReference(ctx context.Context, v *Volume, f plan.Facts) error {
	if v.Record.Block() {
		return env.createDeviceReference(ctx, v)
	}
	path := env.Paths.Reference(v.Name)
	if f.Reference == record.Foreign { // of an earlier stage, or of a bare staging path
		if err := env.removeReference(ctx, v); err != nil {
			return err
		}
	}
	if err := env.Mounts.EnsureDir(ctx, path, OwnDirMode); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	if err := env.Mounts.Bind(ctx, v.Record.Stage.Path, path, false, nil); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	env.Step("after reference")
	return nil
}

// createDeviceReference makes a device node for each use where the kubelet finds a device's users. Only the type of
// these directory entries counts there: a bind would show as the file beneath it (kubernetes#123119).
func (env *Environment) createDeviceReference(ctx context.Context, v *Volume) error {
	for i := range v.Record.Uses {
		if err := env.unbind(ctx, &v.Record.Uses[i]); err != nil {
			return err
		}
	}
	if err := env.Persist(v); err != nil { // so that no crash leaves a device node without a record
		return err
	}
	dir := env.Paths.GlobalMap(v.Record.VolumeSource())
	err := env.Mounts.EnsureDir(ctx, dir, sharedDirMode)
	if err == nil {
		err = env.Mounts.SetDeviceNodes(ctx, dir, v.Record.Users())
	}
	if err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed, Err: err,
			Message: "the kubelet cannot see that the volume is in use, and may unstage it when a pod that uses it " +
				"too ends"}
	}
	env.Step("after reference")
	return nil
}

func (env *Environment) removeReference(ctx context.Context, v *Volume) error {
	if v.Record.Block() {
		return env.removeDeviceReference(ctx, v)
	}
	if err := env.removeMount(ctx, env.Paths.Reference(v.Name)); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	env.Step("after dereference")
	return nil
}

func (env *Environment) removeDeviceReference(ctx context.Context, v *Volume) error {
	dir := env.Paths.GlobalMap(v.Record.VolumeSource())
	if err := env.Mounts.SetDeviceNodes(ctx, dir, nil); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	env.removeEmpty(ctx, dir, filepath.Dir(dir))
	env.Step("after dereference")
	return nil
}
