/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// reportLeaving says on an intent that is being deleted what it waits for where its agent cannot: a namespace may
// wait with it. No agent speaks of an intent that the kubelet publishes; it stays where its policy may be needed.
func (c *Controller) reportLeaving(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent) error {
	unreachable, err := c.unreachable(ctx, cached)
	if err != nil || cached.Status.UniqueVolumeName == "" {
		return err
	}
	kubelet := cached.Spec.Publisher == volumesv1alpha1.PublisherKubelet && status.AwaitsRelease(cached)
	switch {
	case unreachable != "" && (kubelet || status.CarriedOutByAgent(cached)):
		return c.Reporter.Update(ctx, cached, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
			status.SetUnreachable(intent,
				unreachable+". The intent is being deleted and waits until the volume is released: by the agent"+otherwise(cached))
		})
	case kubelet:
		return c.Reporter.Update(ctx, cached, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
			status.Set(intent, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonReleasing,
				"the intent is being deleted and waits until the kubelet of node "+cached.Spec.NodeName+
					" has let go of the volume and the agent has seen that"+otherwise(cached))
		})
	}
	return nil
}

// otherwise is what else lets a volume go.
func otherwise(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	text := ""
	if policy := intent.Spec.DetachPolicy; policy != nil {
		text = ", " + policy.ForceAfter.Duration.String() + " after the node was found not Ready"
	}
	return text + ", after the Node was deleted, or with the taint " + corev1.TaintNodeOutOfService +
		" on it if the machine is off"
}
