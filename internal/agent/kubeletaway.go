/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/mount"
)

// shutdownKubelet stops the filesystem that the kubelet has mounted on an attachment that was forced away, so that
// nothing of it reaches the volume's next life. Unmounting is the kubelet's; until it has done that the volume stays in use here.
func (a *Agent) shutdownKubelet(ctx context.Context, f facts) error {
	err := a.stopKubeletMounts(ctx, f.name, f.kubelet)
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
func (a *Agent) stopKubeletMounts(ctx context.Context, name string, u *kubeletUse) error {
	if u.Block {
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, waits: true,
			message: "the attachment was taken away, but a device that is mapped into a pod cannot be shut down"}
	}
	if !u.proven() {
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, waits: true,
			message: "an attachment was taken away, and whether what the kubelet has mounted is of that one or of a later one is not known; it is left alone"}
	}
	driverName, handle := splitUniqueName(name)
	record := a.paths.kubeletData(driverName, handle, "", corev1.PersistentVolumeFilesystem)
	still := func() error {
		written, err := kubelet.Written(record)
		if err != nil || written != u.ProvenStage {
			signal(a.observer.wake)
			return fmt.Errorf("the kubelet has changed its record of the stage: %w", errors.Join(err, errAgain))
		}
		return nil
	}
	var errs []error
	for _, path := range u.mounts {
		err := a.Mounts.ShutdownFilesystem(ctx, path, still, a.paths.root, a.paths.kubelet)
		if err == nil || errors.Is(err, errAgain) {
			return err
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
