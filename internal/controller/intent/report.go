/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// report writes what does not resolve, what resolves again, and that the agent does not report. If an intent resolves
// at the first try, the attachment controller writes Resolved together with Attached.
func (c *Controller) report(
	ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent, r resolve.Result,
) error {
	unreachable, err := c.unreachable(ctx, cached)
	if err != nil {
		return err
	}
	return c.Reporter.Write(ctx, cached, intentstatus.Found{Result: r, Unreachable: unreachable})
}

// unreachable returns what the node's state says of its unreachable agent; empty while it is heard.
func (c *Controller) unreachable(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) (string, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, nvs); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the state of node %s: %w", intent.Spec.NodeName, err)
		}
		return "", nil
	}
	return unreachableMessage(nvs), nil
}

func unreachableMessage(nvs *volumesv1alpha1.NodeVolumeState) string {
	ready := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready == nil || ready.Reason != volumesv1alpha1.ReasonAgentUnreachable {
		return ""
	}
	return ready.Message
}
