/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates/status,verbs=update

// watchOver says in the agent's stead that it is not heard any more, because a dead agent cannot. The agent takes
// it back itself. The answer is when to reconcile again: at the moment at which the Lease would expire.
func (c *Controller) watchOver(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	c.Tracker.ObserveSession(cached)
	silence := c.Tracker.Silence(cached.Name)
	if silence < 0 {
		return -silence, nil
	}
	if handshake.Silent(cached) {
		return never, nil
	}
	// An agent is not silent because a watch lags: what asserts that its machine is off counts from this mark on.
	lease, err := c.readLease(ctx, cached.Name)
	if err != nil {
		return never, err
	}
	if lease.Name != "" && c.Tracker.Observe(cached.Name, lease) {
		return -c.Tracker.Silence(cached.Name), nil
	}
	nvs := cached.DeepCopy()
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason: volumesv1alpha1.ReasonAgentUnreachable, ObservedGeneration: nvs.Generation,
		Message: fmt.Sprintf("the agent of node %s is unreachable: its Lease %s/%s%s is not renewed",
			nvs.Name, install.Namespace(), volumesv1alpha1.AgentLeasePrefix, nvs.Name),
	})
	node, err := c.node(ctx, nvs.Name)
	if err != nil {
		return never, err
	}
	c.putEvidence(nvs, node)
	err = c.Client.Status().Update(ctx, nvs)
	switch {
	case apierrors.IsNotFound(err):
		return never, nil
	case err != nil:
		// A conflict included: the writer may have been the cluster side, and then no event would bring us back.
		return never, fmt.Errorf("marking node %s unreachable: %w", nvs.Name, err)
	}
	return never, nil
}
