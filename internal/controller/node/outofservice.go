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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/fences"
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
// that taint, without the option too, once the node's agent has reported that nothing is left of what was forced away.
// It changes no taint of others.
func (c *Controller) manageTaint(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: cached.Name}, node); err != nil {
		return never, client.IgnoreNotFound(err)
	}
	switch taint := handshake.OutOfService(node); {
	case c.ManageTaint && taint == nil && !liveness.Ready(node) &&
		len(countedFences(cached, handshake.LastHeard(cached, c.Tracker.LastWord(cached.Name)))) > 0:
		if silence := c.Tracker.Silence(cached.Name); silence < 0 { // the mark may be of the past
			return -silence, nil
		}
		if c.Tracker.MayBePast(cached) { // the fence, too
			return taintAgain, nil
		}
		return c.setTaint(ctx, cached.Name)
	case handshake.SetByHawser(taint) && handshake.Settled(cached, node):
		return c.removeTaint(ctx, cached.Name)
	}
	return never, nil
}

// taintAgain is when a taint is tried again that the manager may not write, or whose fence could not be read, did not
// hold, or may be of before a restore: no event shows that this has changed.
const taintAgain = time.Minute

// countedFences are the recorded fences of a node whose agent is marked as silent, and has not contradicted them.
func countedFences(nvs *volumesv1alpha1.NodeVolumeState, heard handshake.Heard) []volumesv1alpha1.FenceReference {
	if !handshake.Silent(nvs) {
		return nil
	}
	var counted []volumesv1alpha1.FenceReference
	for _, r := range nvs.Status.Node.Fences {
		if said := handshake.FenceAssertion(r, heard); said.Recorded && !said.Contradicted {
			counted = append(counted, r.FenceReference)
		}
	}
	return counted
}

// setTaint once state, Node, Lease and fence were read live, in this order.
func (c *Controller) setTaint(ctx context.Context, name string) (time.Duration, error) {
	nvs, node, err := c.readForTaint(ctx, name)
	if err != nil || nvs == nil || handshake.OutOfService(node) != nil || liveness.Ready(node) {
		return never, err
	}
	lease, err := c.readLease(ctx, name)
	if err != nil {
		return never, err
	}
	counted := countedFences(nvs, handshake.LastHeard(nvs, handshake.Renewal(lease)))
	if len(counted) == 0 {
		return never, nil
	}
	fence := fences.Holding(ctx, c.Fences, counted, node, nvs)
	if fence == nil {
		return taintAgain, nil
	}
	again, err := c.patchTaints(ctx, nvs, node, append(slices.Clone(node.Spec.Taints), corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: volumesv1alpha1.OutOfServiceTaintValue,
		Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr.To(metav1.NewTime(c.Clock.Now())),
	}))
	if err == nil && again == never {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventNodeOutOfService, "Taint",
			"%s of fence source %s proves %s of the machine of node %s: the manager has set the taint %s, which removes the "+
				"node's pods", fence.Name, fence.Source, fence.Proves, name, corev1.TaintNodeOutOfService)
	}
	return again, err
}

// removeTaint that the manager has set.
func (c *Controller) removeTaint(ctx context.Context, name string) (time.Duration, error) {
	nvs, node, err := c.readForTaint(ctx, name)
	if err != nil || nvs == nil || !handshake.Settled(nvs, node) {
		return never, err
	}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return handshake.SetByHawser(&t)
	})
	if len(left) == len(node.Spec.Taints) {
		return never, nil
	}
	if again, err := c.patchTaints(ctx, nvs, node, left); err != nil || again != never {
		return again, err
	}
	c.Events.Eventf(nvs, nil, corev1.EventTypeNormal, EventNodeInService, "Taint",
		"the agent of node %s has reported, and nothing is left of what was forced away: the manager has removed the "+
			"taint %s", name, corev1.TaintNodeOutOfService)
	return never, nil
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

// patchTaints at the version of the Node that was read: others change taints, too. It returns when to try again where
// it may not: no retry helps before an administrator has granted the right.
func (c *Controller) patchTaints(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, node *corev1.Node,
	taints []corev1.Taint) (time.Duration, error) {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Spec.Taints = taints
	err := c.Client.Patch(ctx, node, patch)
	switch {
	case apierrors.IsForbidden(err):
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventTaintNotWritten, "Taint",
			"the taint %s of node %s is not changed: %s", corev1.TaintNodeOutOfService, nvs.Name, err)
		return taintAgain, nil
	case err != nil:
		return never, fmt.Errorf("changing the taint %s of node %s: %w", corev1.TaintNodeOutOfService, nvs.Name, err)
	}
	return never, nil
}

// taintMayGo lets through what decides about the taint: fences, and, on a Node that the manager has put out of service,
// what is left there.
func (c *Controller) taintMayGo() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
			if c.ManageTaint && !equality.Semantic.DeepEqual(was.Status.Node.Fences, is.Status.Node.Fences) {
				return true
			}
			node := &corev1.Node{}
			err := c.Client.Get(context.Background(), client.ObjectKeyFromObject(is), node) // of the cache
			return err == nil && handshake.SetByHawser(handshake.OutOfService(node))
		},
	}
}
