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

// shutdown stops the filesystem that the kubelet has mounted on an attachment that was forced away, so that
// nothing of it reaches the volume's next life. Unmounting is the kubelet's; until it has done that the volume stays in use here.
func (o *observer) shutdown(ctx context.Context, name string, use *kubeletUse) error {
	err := o.stopMounts(ctx, name, use)
	if errors.Is(err, errAgain) {
		return err
	}
	var failed *volumesv1alpha1.OperationError
	if err != nil {
		failed = nextError(use.failure, "unstage", err, o.Clock.Now())
	} else {
		o.Log.Info("shut down what the kubelet has mounted of an attachment that was forced away", "volume", name, "paths", use.mounts)
	}
	o.change(name, func(u *kubeletUse) {
		if sameLife(u.Life, use.Life) {
			u.ShutDown, u.failure = err == nil, failed
		}
	})
	o.Reports.touch()
	return errors.Join(err, o.saveKubeletUses())
}

// stopMounts shuts the volume's filesystem down by one of its mounts that shows the whole of it.
func (o *observer) stopMounts(ctx context.Context, name string, u *kubeletUse) error {
	if u.Block {
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, waits: true,
			message: "the attachment was taken away, but a device that is mapped into a pod cannot be shut down"}
	}
	if !u.proven() {
		return &problem{reason: volumesv1alpha1.ReasonForcedAway, waits: true,
			message: "an attachment was taken away, and whether what the kubelet has mounted is of that one or of a later one is not known; it is left alone"}
	}
	driverName, handle := splitUniqueName(name)
	written := o.Paths.kubeletData(driverName, handle, "", corev1.PersistentVolumeFilesystem)
	still := func() error {
		last, err := kubelet.Written(written)
		if err != nil || last != u.ProvenStage {
			signal(o.wake)
			return fmt.Errorf("the kubelet has changed its record of the stage: %w", errors.Join(err, errAgain))
		}
		return nil
	}
	var errs []error
	for _, path := range u.mounts {
		err := o.Mounts.ShutdownFilesystem(ctx, path, still, o.Paths.root, o.Paths.kubelet)
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
