/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// shutdownKubelet stops the filesystem that the kubelet has mounted on an attachment that was forced away, so that
// nothing of it reaches the volume's next life. Unmounting is the kubelet's; until it has done that the volume stays in use here.
func (a *Agent) shutdownKubelet(ctx context.Context, f facts) error {
	err := a.stopKubeletMounts(ctx, f.kubelet)
	if errors.Is(err, errAgain) {
		return err
	}
	var failed *failure
	if err != nil {
		failed = newFailure(f.kubelet.failure, act{verb: doShutdownKubelet}, "", err, a.Clock.Now())
	} else {
		a.Log.Info("shut down what the kubelet has mounted of an attachment that was forced away", "volume", f.name, "paths", f.kubelet.mounts)
	}
	a.observer.change(f.name, func(u *kubeletUse) {
		if sameLife(u.Life, f.kubelet.Life) {
			u.ShutDown, u.failure = err == nil, failed
		}
	})
	a.state.touch()
	return errors.Join(err, a.saveKubeletUses())
}

// stopKubeletMounts shuts the volume's filesystem down by one of its mounts that shows the whole of it.
func (a *Agent) stopKubeletMounts(ctx context.Context, u *kubeletUse) error {
	if u.Block {
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, waits: true,
			message: "the attachment was taken away, but a device that is mapped into a pod cannot be shut down"}
	}
	var errs []error
	for _, path := range u.mounts {
		err := a.Mounts.ShutdownFilesystem(ctx, path, a.paths.root, a.paths.kubelet)
		if err == nil {
			return nil
		}
		if !errors.Is(err, mount.ErrNotMounted) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("the mounts have changed: %w", errAgain)
	}
	return &problem{reason: volumesv1alpha1.ReasonForcedAway, err: errors.Join(errs...),
		message: "the attachment was taken away, but what the kubelet has mounted cannot be shut down"}
}
