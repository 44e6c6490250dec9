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
	"github.com/hawser-io/hawser/internal/mount"
)

var shutdownStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.shutdown(ctx, v, f)
	},
}

var shutdownKubeletStep = step{
	operation: "unstage", event: eventFailedUnmount, logged: true,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.Observer.shutdown(ctx, f.name, f.kubelet)
	},
}

// shutdown stops the filesystem of an attachment that was taken away, by a mount that is certainly of it, so that nothing of it
// reaches the volume's next life. Where that cannot be done the mount stays, and everybody is told.
func (a *Environment) shutdown(ctx context.Context, v *volume, f facts) error {
	r, path := v.record, f.ownMount()
	still := func() error {
		if path != r.Stage.Path {
			return nil
		}
		staged, err := a.kubeletStages(r)
		if staged {
			a.Observer.observeSoon()
			err = fmt.Errorf("the kubelet has staged the volume: %w", errAgain)
		}
		return err
	}
	err := a.Mounts.ShutdownFilesystem(ctx, path, still, a.Paths.root, a.Paths.kubelet)
	if errors.Is(err, errAgain) {
		return err
	}
	if err != nil && !errors.Is(err, mount.ErrNotMounted) {
		v.unprotected = true
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, err: err,
			message: fmt.Sprintf("the attachment was taken away, but the filesystem at %s cannot be shut down; the mount is left alone", path)}
	}
	v.unprotected = false
	r.ShutDown = true
	return a.save(v)
}
