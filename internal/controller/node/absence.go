/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/handshake"
)

// recordAbsence keeps the record of a Node that this process saw go with its machine out of reach. It is written where
// something is attached, and once more when the agent contradicts it, or an agent reports a restore: the Node may have
// come back since what the API server was restored to, and what runs there has lost its credentials.
func (c *Controller) recordAbsence(
	ctx context.Context, cached *volumesv1alpha1.NodeVolumeState,
) (time.Duration, error) {
	seen, err := c.departure(ctx, cached)
	if err != nil {
		return never, err
	}
	record, renewal := cached.Status.Node.Absence, ""
	if record != nil && record.Contradicted == nil && c.Tracker.Await(cached.Name, record.LastRenewal) {
		renewal = c.Tracker.LastWord(cached.Name)
	}
	now := metav1.NewTime(c.Clock.Now())
	if handshake.RecordAbsence(record, seen, handshake.LastHeard(cached, renewal), c.Tracker.Restored(), now) == record {
		return never, nil
	}
	var next *volumesv1alpha1.AbsenceObservation
	_, err = c.Observations.Apply(ctx, cached.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		next = nil
		if nvs == nil {
			return nil, nil
		}
		var err error
		if next, err = c.readAbsence(ctx, nvs, seen, now); err != nil ||
			equality.Semantic.DeepEqual(nvs.Status.Node.Absence, next) {
			return nil, err
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Absence = next }, nil
	})
	if err != nil {
		return never, fmt.Errorf("recording that node %s is gone: %w", cached.Name, err)
	}
	if next != nil && next.Contradicted == nil {
		c.Tracker.Await(cached.Name, next.LastRenewal)
	}
	return never, nil
}

// forgetAbsence ends the record of a Node that is there again, as the API shows it.
func (c *Controller) forgetAbsence(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if nvs.Status.Node.Absence == nil {
		return never, nil
	}
	_, err := c.Observations.Apply(ctx, nvs.Name,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			if nvs == nil || nvs.Status.Node.Absence == nil {
				return nil, nil
			}
			node := &corev1.Node{}
			err := c.Reader.Get(ctx, client.ObjectKey{Name: nvs.Name}, node)
			if err != nil || node.UID == nvs.Status.Node.Absence.NodeUID {
				return nil, client.IgnoreNotFound(err)
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Absence = nil }, nil
		})
	if err != nil {
		return never, fmt.Errorf("forgetting that node %s was gone: %w", nvs.Name, err)
	}
	return never, nil
}

// departure of the Node that this process saw; nil if it saw none, or if nothing is attached or recorded.
func (c *Controller) departure(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
) (*handshake.Departure, error) {
	seen := c.Tracker.Departure(nvs)
	if seen == nil || nvs.Status.Node.Absence != nil || len(nvs.Spec.Attachments) > 0 {
		return seen, nil
	}
	held, err := c.held(ctx, nvs.Name)
	if err != nil || !held {
		return nil, err
	}
	return seen, nil
}

// wakeConcerned wakes the nodes that a restore concerns: those whose Node is absent, and those of which what would be
// evidence may be of the past.
func (c *Controller) wakeConcerned(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the nodes that a restore concerns")
		return
	}
	for i := range states.Items {
		if nvs := &states.Items[i]; nvs.Status.Node.Absence != nil || evidence.Awaited(nvs) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(nvs)})
		}
	}
}

// readAbsence returns the record by what the API shows now, the Node and then the agent's Lease.
func (c *Controller) readAbsence(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, seen *handshake.Departure, now metav1.Time,
) (*volumesv1alpha1.AbsenceObservation, error) {
	record := nvs.Status.Node.Absence
	err := c.Reader.Get(ctx, client.ObjectKey{Name: nvs.Name}, &corev1.Node{})
	switch {
	case err == nil:
		return record, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading node %s: %w", nvs.Name, err)
	}
	heard, err := c.readHeard(ctx, nvs)
	if err != nil {
		return nil, err
	}
	return handshake.RecordAbsence(record, seen, heard, c.Tracker.Restored(), now), nil
}
