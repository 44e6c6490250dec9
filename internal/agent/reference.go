/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

var referStep = step{
	operation: "stage", event: eventFailedMount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.referencer().refer(ctx, v, f)
	},
}

var unreferStep = step{
	operation: "unstage", event: eventFailedUnmount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.referencer().unrefer(ctx, v)
	},
}

// referencer shows the kubelet that the agent uses a stage, and takes that away.
type referencer struct{ *Environment }

// refer keeps the kubelet from unstaging: by a bind mount of the stage under the agent's own root or, for Block, by device nodes.
func (a referencer) refer(ctx context.Context, v *volume, f facts) error {
	if v.record.block() {
		return a.referToDevice(ctx, v)
	}
	path := a.Paths.reference(v.name)
	if f.reference == foreign { // of an earlier stage, or of a bare staging path
		if err := a.unrefer(ctx, v); err != nil {
			return err
		}
	}
	if err := a.Mounts.EnsureDir(ctx, path, ownDirMode); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	if err := a.Mounts.Bind(ctx, v.record.Stage.Path, path, false, nil); err != nil {
		return fmt.Errorf("making reference: %w", err)
	}
	a.Step("after reference")
	return nil
}

// referToDevice makes a device node for each use where the kubelet looks for a device's users. Only the type of these directory
// entries counts there: a bind would show as the file beneath it (kubernetes#123119).
func (a referencer) referToDevice(ctx context.Context, v *volume) error {
	for i := range v.record.Uses {
		if err := a.unbind(ctx, &v.record.Uses[i]); err != nil {
			return err
		}
	}
	if err := a.save(v); err != nil { // so that no crash leaves a node of nobody
		return err
	}
	dir := a.Paths.globalMap(v.record.PersistentVolume)
	err := a.Mounts.EnsureDir(ctx, dir, sharedDirMode)
	if err == nil {
		err = a.Mounts.SetDeviceNodes(ctx, dir, v.record.users())
	}
	if err != nil {
		return &problem{reason: volumesv1alpha1.ReasonStageFailed, err: err,
			message: "the kubelet cannot see that the volume is in use, and may unstage it when a pod that uses it too ends"}
	}
	a.Step("after reference")
	return nil
}

func (a referencer) unrefer(ctx context.Context, v *volume) error {
	if v.record.block() {
		return a.unreferToDevice(ctx, v)
	}
	if err := a.removeMount(ctx, a.Paths.reference(v.name)); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	a.Step("after dereference")
	return nil
}

func (a referencer) unreferToDevice(ctx context.Context, v *volume) error {
	dir := a.Paths.globalMap(v.record.PersistentVolume)
	if err := a.Mounts.SetDeviceNodes(ctx, dir, nil); err != nil {
		return fmt.Errorf("removing reference: %w", err)
	}
	a.removeEmpty(ctx, dir, filepath.Dir(dir))
	a.Step("after dereference")
	return nil
}
