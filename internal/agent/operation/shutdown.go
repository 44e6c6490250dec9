/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/mount"
)

var shutdownStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.shutdown(ctx, v, f)
	},
}

var shutdownKubeletStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true,
	run: func(ctx context.Context, env *Environment, _ *Volume, f plan.Facts, _ types.UID) error {
		return env.Observer.Shutdown(ctx, f.Name, f.Kubelet)
	},
}

// shutdown stops the filesystem of an attachment that was taken away, by a mount that is certainly of it, so that
// nothing of it reaches the volume's next life. Where that fails the mount stays, and the status reports the volume as
// unprotected.
func (env *Environment) shutdown(ctx context.Context, v *Volume, f plan.Facts) error {
	r, path := v.Record, f.OwnMount()
	still := func() error {
		if path != r.Stage.Path {
			return nil
		}
		staged, err := env.kubeletStages(r)
		if staged {
			env.Observer.ObserveSoon()
			err = fmt.Errorf("the kubelet has staged the volume: %w", failure.ErrChanged)
		}
		return err
	}
	err := env.Mounts.ShutdownFilesystem(ctx, path, still, env.Paths.Root, env.Paths.Kubelet)
	if errors.Is(err, failure.ErrChanged) {
		return err
	}
	if err != nil && !errors.Is(err, mount.ErrNotMounted) {
		v.Unprotected = true
		return &failure.Problem{Reason: volumesv1alpha1.ReasonForcedAway, Err: err,
			Message: fmt.Sprintf("the attachment was taken away, but the filesystem at %s cannot be shut down; the "+
				"mount is left alone", path)}
	}
	v.Unprotected = false
	r.ShutDown = true
	return env.Persist(v)
}
