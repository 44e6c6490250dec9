/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
)

// EventTaintContradicted: the Node carries the out-of-service taint, and its agent reports.
const EventTaintContradicted = volumesv1alpha1.ReasonTaintContradicted

// recordTaint keeps the record of the Node's out-of-service taint. It is written when the taint is first seen, when the
// agent contradicts it, and when it is gone. The renewal after the first sight wakes the node once.
func (c *Controller) recordTaint(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: cached.Name}, node); err != nil {
		return never, client.IgnoreNotFound(err)
	}
	now, record := metav1.NewTime(c.Clock.Now()), cached.Status.Node.OutOfService
	heard := record != nil && record.Contradicted == nil && c.Tracker.Await(cached.Name, record.LastRenewal)
	renewal := ""
	if heard {
		renewal = c.Tracker.LastWord(cached.Name)
	}
	if handshake.RecordTaint(record, handshake.DeclaredOff(node), handshake.LastHeard(cached, renewal),
		now) == record {
		return never, nil
	}
	var next *volumesv1alpha1.OutOfServiceObservation
	contradicted := false
	nvs, err := c.Observations.Apply(ctx, cached.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		contradicted = false
		if nvs == nil {
			return nil, nil
		}
		record := nvs.Status.Node.OutOfService
		var err error
		if next, err = c.readTaint(ctx, nvs, now); err != nil || equality.Semantic.DeepEqual(record, next) {
			return nil, err
		}
		contradicted = next != nil && next.Contradicted != nil
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Node.OutOfService = next
			showTaint(nvs)
		}, nil
	})
	if err != nil {
		return never, fmt.Errorf("recording the out-of-service taint of node %s: %w", cached.Name, err)
	}
	if next != nil && next.Contradicted == nil {
		c.Tracker.Await(cached.Name, next.LastRenewal)
	}
	if contradicted {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventTaintContradicted, "Detach", "%s",
			taintContradicted(cached.Name))
	}
	return never, nil
}

// readTaint returns the record by what the Node and the agent's Lease show now, read in this order.
func (c *Controller) readTaint(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, now metav1.Time,
) (*volumesv1alpha1.OutOfServiceObservation, error) {
	record, node := nvs.Status.Node.OutOfService, &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: nvs.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return record, nil // what a Node carried that is not there is not known
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", nvs.Name, err)
	}
	heard, err := c.readHeard(ctx, nvs)
	if err != nil {
		return nil, err
	}
	return handshake.RecordTaint(record, handshake.DeclaredOff(node), heard, now), nil
}

// readHeard is what the state and the agent's Lease, read live, show of the agent.
func (c *Controller) readHeard(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (handshake.Heard, error) {
	lease, err := c.readLease(ctx, nvs.Name)
	if err != nil {
		return handshake.Heard{}, err
	}
	if lease.Name != "" {
		c.Tracker.Observe(nvs.Name, lease) // the watch may lag behind what is recorded
	}
	return handshake.LastHeard(nvs, handshake.Renewal(lease)), nil
}

// readLease reads the Lease of the node's agent live; an empty one where there is none.
func (c *Controller) readLease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + node}
	err := c.Reader.Get(ctx, key, lease)
	switch {
	case apierrors.IsNotFound(err):
		return &coordinationv1.Lease{}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Lease of node %s: %w", node, err)
	}
	return lease, nil
}

// showTaint sets the condition by the record. One that is absent stays so as long as nothing is wrong.
func showTaint(nvs *volumesv1alpha1.NodeVolumeState) {
	record := nvs.Status.Node.OutOfService
	c := metav1.Condition{
		Type: volumesv1alpha1.ConditionTaintConsistent, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonAsExpected, Message: "nothing is wrong any more",
	}
	switch {
	case record != nil && record.Contradicted != nil:
		c.Status, c.Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonTaintContradicted
		c.Message = taintContradicted(nvs.Name)
	case meta.FindStatusCondition(nvs.Status.Conditions, c.Type) == nil:
		return
	}
	meta.SetStatusCondition(&nvs.Status.Conditions, c)
}

func taintContradicted(node string) string {
	return fmt.Sprintf("node %[1]s carries the taint %[2]s, but its agent has reported since: "+
		"the taint forces no detach until it is removed, status.node.outOfService is gone and the taint is set again, and "+
		"nothing new is attached to the node meanwhile. "+
		"If the machine runs, remove the taint: kubectl taint node %[1]s %[2]s-", node, corev1.TaintNodeOutOfService)
}

// taintDiffers reports whether the Nodes carry another out-of-service taint each, or only one does.
func taintDiffers(was, is *corev1.Node) bool {
	return !equality.Semantic.DeepEqual(handshake.OutOfService(was), handshake.OutOfService(is))
}
