/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// reportLeaving says on an intent that is being deleted what it waits for where its agent cannot: a namespace may wait with it.
func (c *Controller) reportLeaving(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent) error {
	unreachable, err := c.unreachable(ctx, cached)
	if err != nil || unreachable == "" || cached.Status.UniqueVolumeName == "" || !status.CarriedOutByAgent(cached) {
		return err
	}
	message := unreachable + ". The intent is being deleted and waits until the volume is released: by the agent"
	if policy := cached.Spec.DetachPolicy; policy != nil {
		message += ", " + policy.ForceAfter.Duration.String() + " after the node was found not Ready"
	}
	message += ", after the Node was deleted, or with the taint " + corev1.TaintNodeOutOfService + " on it if the machine is off"
	return c.Reporter.Update(ctx, cached, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		status.SetUnreachable(intent, message)
	})
}
