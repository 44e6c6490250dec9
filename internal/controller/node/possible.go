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
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/evidence"
)

// pastAgain is when it is looked again whether what the API shows of a node may be of before a restore.
const pastAgain = 30 * time.Second

// showEvidence keeps the condition DetachPossible: on what volumes of a node may be detached whose agent is
// unreachable, or what is missing for that. It is for people, so what the cache shows is enough. The mark that the
// agent is unreachable and the agent's next report change it in their own writes, so it rarely costs one. It returns
// when a Node that is gone will be evidence, or when to see whether a restore is over: no event shows that.
func (c *Controller) showEvidence(
	ctx context.Context, cached *volumesv1alpha1.NodeVolumeState,
) (time.Duration, error) {
	node, err := c.node(ctx, cached.Name)
	if err != nil {
		return never, err
	}
	due := never
	if wait := decision.GoneAfter - c.Tracker.Silence(cached.Name); node == nil && evidence.Awaited(cached) && wait > 0 {
		due = wait
	}
	if evidence.Awaited(cached) && c.Tracker.MayBePast(cached) {
		due = sooner(due, pastAgain)
	}
	if !c.putEvidence(cached.DeepCopy(), node) {
		return due, nil
	}
	_, err = c.Observations.Apply(ctx, cached.Name, func(
		_ context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		if nvs == nil || !c.putEvidence(nvs.DeepCopy(), node) {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { c.putEvidence(nvs, node) }, nil
	})
	if err != nil {
		return never, fmt.Errorf("reporting what is missing for a detach from node %s: %w", cached.Name, err)
	}
	return due, nil
}

// putEvidence sets the condition, or removes it, and reports whether that changed something. node is nil where there is
// none.
func (c *Controller) putEvidence(nvs *volumesv1alpha1.NodeVolumeState, node *corev1.Node) bool {
	ground := evidence.Ground{Node: node, State: nvs, Renewal: c.Tracker.LastWord(nvs.Name),
		Silence: c.Tracker.Silence(nvs.Name), MayBePast: c.Tracker.MayBePast(nvs)}
	if restores := c.Tracker.Restores(); len(restores) > 0 {
		ground.Restore = restores[0]
	}
	next := ground.Condition(c.Fences.Names())
	if next == nil {
		return meta.RemoveStatusCondition(&nvs.Status.Conditions, volumesv1alpha1.ConditionDetachPossible)
	}
	return meta.SetStatusCondition(&nvs.Status.Conditions, *next)
}

// evidenceChanged reports whether another condition DetachPossible may be due.
func evidenceChanged(before, after *volumesv1alpha1.NodeVolumeState) bool {
	shown := func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionDetachPossible) != nil
	}
	return evidence.Awaited(before) != evidence.Awaited(after) || shown(before) != shown(after) ||
		evidence.Awaited(after) && !(equality.Semantic.DeepEqual(before.Status.Node.Fences, after.Status.Node.Fences) &&
			equality.Semantic.DeepEqual(before.Status.Node.OutOfService, after.Status.Node.OutOfService) &&
			equality.Semantic.DeepEqual(before.Status.Node.Absence, after.Status.Node.Absence))
}
