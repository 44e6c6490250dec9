/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// expanded writes into the claim's status what the kubelet would after it expanded a volume, once every node that
// has the volume in use through this claim's intents sees its full capacity.
func (c *Controller) expanded(ctx context.Context, cached *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent) error {
	if len(intents) == 0 || !waitsForNode(cached) {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: cached.Spec.VolumeName}, pv); err != nil {
		return client.IgnoreNotFound(err)
	}
	capacity, known := pv.Spec.Capacity[corev1.ResourceStorage]
	if !known || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != cached.UID {
		return nil
	}
	seen, err := c.seenByNodes(ctx, volume.UniqueNameOf(pv), capacity)
	if err != nil || !seen {
		return err
	}
	claim := cached.DeepCopy()
	markExpanded(claim, capacity)
	err = c.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(cached, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("updating the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
}

// waitsForNode: the controller side of an expansion is done and the node's part is due.
func waitsForNode(claim *corev1.PersistentVolumeClaim) bool {
	if slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	}) {
		return true
	}
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	}
	return false
}

// seenByNodes says whether at least one node has the volume in use and all that do see the capacity.
func (c *Controller) seenByNodes(ctx context.Context, name string, capacity resource.Quantity) (bool, error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: name}); err != nil {
		return false, fmt.Errorf("listing the nodes of volume %s: %w", name, err)
	}
	seen := false
	for i := range states.Items {
		v := handshake.VolumeOf(&states.Items[i], name)
		if v == nil || !v.InUse {
			continue
		}
		if v.Capacity == nil || v.Capacity.Cmp(capacity) < 0 {
			return false, nil
		}
		seen = true
	}
	return seen, nil
}

func markExpanded(claim *corev1.PersistentVolumeClaim, capacity resource.Quantity) {
	if claim.Status.Capacity == nil {
		claim.Status.Capacity = corev1.ResourceList{}
	}
	claim.Status.Capacity[corev1.ResourceStorage] = capacity
	delete(claim.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending || c.Type == corev1.PersistentVolumeClaimResizing
	})
}
