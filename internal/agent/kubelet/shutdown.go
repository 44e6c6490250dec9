/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// Shutdown stops the filesystem that the kubelet has mounted on an attachment that was forced away, so that nothing of
// it reaches the volume's next life. Unmounting is the kubelet's; until it has done that the volume stays in use here.
func (o *Observer) Shutdown(ctx context.Context, name string, use *TrackedUse) error {
	err := o.stopMounts(ctx, name, use)
	if errors.Is(err, failure.ErrChanged) {
		return err
	}
	var failed *volumesv1alpha1.OperationError
	if err != nil {
		failed = failure.NextError(use.Failure, "unstage", err, o.Clock.Now())
	} else {
		o.Log.Info("shut down what the kubelet has mounted of an attachment that was forced away", "volume", name,
			"paths", use.Mounts)
	}
	o.Update(name, func(u *TrackedUse) {
		if sameLife(u.Life, use.Life) {
			u.ShutDown, u.Failure = err == nil, failed
		}
	})
	o.Reports.ReportSoon()
	return errors.Join(err, o.Save())
}

// stopMounts shuts the volume's filesystem down by one of its mounts that shows the whole of it.
func (o *Observer) stopMounts(ctx context.Context, name string, u *TrackedUse) error {
	if u.Block {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonForcedAway, AwaitsEvent: true,
			Message: "the attachment was taken away, but a device that is mapped into a pod cannot be shut down"}
	}
	if !u.Proven() {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonForcedAway, AwaitsEvent: true,
			Message: "an attachment was taken away, and whether what the kubelet has mounted is of that one or of a " +
				"later one is not known; it is left alone"}
	}
	written := o.Paths.KubeletData(record.VolumeSourceNamed(name))
	still := func() error {
		last, err := Written(written)
		if err != nil || last != u.ProvenStage {
			signal(o.Wake)
			return fmt.Errorf("the kubelet has changed its record of the stage: %w",
				errors.Join(err, failure.ErrChanged))
		}
		return nil
	}
	var errs []error
	for _, path := range u.Mounts {
		err := o.Mounts.ShutdownFilesystem(ctx, path, still, o.Paths.Root, o.Paths.Kubelet)
		if err == nil || errors.Is(err, failure.ErrChanged) {
			return err
		}
		if !errors.Is(err, mount.ErrNotMounted) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("the mounts have changed: %w", failure.ErrChanged)
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonForcedAway, Err: errors.Join(errs...),
		Message: "the attachment was taken away, but what the kubelet has mounted cannot be shut down"}
}
