/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	// EventNodeOutOfService: the manager has set the out-of-service taint on a fence.
	EventNodeOutOfService = "NodeOutOfService"
	// EventNodeInService: the manager has removed that taint.
	EventNodeInService = "NodeInService"
	// EventTaintNotWritten: the manager may not change the taints of Nodes.
	EventTaintNotWritten = "TaintNotWritten"
)

// manageTaint sets the out-of-service taint of a Node whose machine is fenced, so that its pods are removed. It removes
// that taint once the node's agent has reported that nothing is left of what was forced away. It changes no taint of
// others.
func (c *Controller) manageTaint(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if !c.ManageTaint {
		return never, nil
	}
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: cached.Name}, node); err != nil {
		return never, client.IgnoreNotFound(err)
	}
	var err error
	switch taint := handshake.OutOfService(node); {
	case taint == nil && c.countedFence(cached, c.Tracker.LastWord(cached.Name)) != nil && !liveness.Ready(node):
		err = c.setTaint(ctx, cached.Name)
	case taint != nil && handshake.SetByHawser(taint) && handshake.Settled(cached):
		err = c.removeTaint(ctx, cached.Name)
	}
	if apierrors.IsForbidden(err) { // no retry helps before an administrator has granted the right
		c.Events.Eventf(cached, nil, corev1.EventTypeWarning, EventTaintNotWritten, "Taint",
			"the taint %s of node %s is not changed: %s", corev1.TaintNodeOutOfService, cached.Name, err)
		return taintAgain, nil
	}
	return never, err
}

// taintAgain is when a taint is tried again that the manager may not write: no event shows that it may.
const taintAgain = time.Minute

// countedFence is the first recorded fence of a node whose agent is marked as silent, and has not contradicted it.
func (c *Controller) countedFence(
	nvs *volumesv1alpha1.NodeVolumeState, renewal string,
) *volumesv1alpha1.FenceReference {
	if !handshake.Silent(nvs) {
		return nil
	}
	for i := range nvs.Status.Node.Fences {
		said := handshake.FenceAssertion(nvs.Status.Node.Fences[i], renewal)
		if said.Recorded && !said.Contradicted {
			return &nvs.Status.Node.Fences[i].FenceReference
		}
	}
	return nil
}

// setTaint once state, Node, Lease and fence were read live, in this order.
func (c *Controller) setTaint(ctx context.Context, name string) error {
	nvs, node, err := c.readForTaint(ctx, name)
	if err != nil || nvs == nil || handshake.OutOfService(node) != nil || liveness.Ready(node) {
		return err
	}
	lease, err := c.readLease(ctx, name)
	if err != nil {
		return err
	}
	fence := c.countedFence(nvs, handshake.Renewal(lease))
	if fence == nil {
		return nil
	}
	holds, err := c.Fences.Holds(ctx, *fence, node, nvs)
	if err != nil || !holds {
		return err
	}
	err = c.patchTaints(ctx, node, append(slices.Clone(node.Spec.Taints), corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: volumesv1alpha1.OutOfServiceTaintValue,
		Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr.To(metav1.NewTime(c.Clock.Now())),
	}))
	if err == nil {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventNodeOutOfService, "Taint",
			"%s of fence source %s proves %s of the machine of node %s: the manager has set the taint %s, which removes the "+
				"node's pods", fence.Name, fence.Source, fence.Proves, name, corev1.TaintNodeOutOfService)
	}
	return err
}

// removeTaint that the manager has set.
func (c *Controller) removeTaint(ctx context.Context, name string) error {
	nvs, node, err := c.readForTaint(ctx, name)
	if err != nil || nvs == nil || !handshake.Settled(nvs) {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return handshake.SetByHawser(&t)
	})
	if len(left) == len(node.Spec.Taints) {
		return nil
	}
	if err := c.patchTaints(ctx, node, left); err != nil {
		return err
	}
	c.Events.Eventf(nvs, nil, corev1.EventTypeNormal, EventNodeInService, "Taint",
		"the agent of node %s has reported, and nothing is left of what was forced away: the manager has removed the "+
			"taint %s", name, corev1.TaintNodeOutOfService)
	return nil
}

// readForTaint reads the state and then the Node live; nil where there is none.
func (c *Controller) readForTaint(
	ctx context.Context, name string,
) (*volumesv1alpha1.NodeVolumeState, *corev1.Node, error) {
	nvs, node := &volumesv1alpha1.NodeVolumeState{}, &corev1.Node{}
	for _, o := range []client.Object{nvs, node} {
		if err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
			return nil, nil, client.IgnoreNotFound(err)
		}
	}
	return nvs, node, nil
}

// patchTaints at the version of the Node that was read: others change taints, too.
func (c *Controller) patchTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Spec.Taints = taints
	if err := c.Client.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("changing the taint %s of node %s: %w", corev1.TaintNodeOutOfService, node.Name, err)
	}
	return nil
}
