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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
)

// expanded writes into the claim's status what the kubelet would after it expanded a volume, once every node that
// has the volume in use through this claim's intents sees its full capacity.
func (c *Controller) expanded(
	ctx context.Context, cached *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent,
) error {
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
	if volume.ExpandFrom(capacity, cached) == nil {
		return nil // the claim may be in the cache before the volume's new capacity
	}
	seen, infeasible, err := c.seenByNodes(ctx, volume.UniqueNameOf(pv), capacity)
	if err != nil {
		return err
	}
	claim := cached.DeepCopy()
	switch {
	case infeasible != "":
		markInfeasible(claim, infeasible)
	case seen:
		markExpanded(claim, capacity)
	}
	if equality.Semantic.DeepEqual(claim.Status, cached.Status) {
		return nil
	}
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
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return true
	}
	return false
}

// seenByNodes reports whether at least one node has the volume in use and all that do see the capacity, and what a
// driver says if a node can never expand the volume.
func (c *Controller) seenByNodes(
	ctx context.Context, name string, capacity resource.Quantity,
) (seen bool, infeasible string, err error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: name}); err != nil {
		return false, "", fmt.Errorf("listing the nodes of volume %s: %w", name, err)
	}
	all := true
	for i := range states.Items {
		v := handshake.VolumeOf(&states.Items[i], name)
		if v == nil || !v.InUse {
			continue
		}
		seen, all = true, all && v.Capacity != nil && v.Capacity.Cmp(capacity) >= 0
		if infeasible == "" {
			infeasible = infeasibleExpansion(v)
		}
	}
	return seen && all, infeasible, nil
}

// infeasibleExpansion is what the driver says of an expansion that no retry can mend, by the codes that the kubelet
// takes for that.
func infeasibleExpansion(v *volumesv1alpha1.NodeVolume) string {
	if e := v.Error; e != nil && e.Operation == "expand" && slices.Contains(driver.InfeasibleCodes, e.Code) {
		return e.Message
	}
	return ""
}

// markInfeasible writes what the kubelet would: the resizer then takes up another size that the claim asks for.
func markInfeasible(claim *corev1.PersistentVolumeClaim, message string) {
	if claim.Status.AllocatedResourceStatuses == nil {
		claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
	is := func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimNodeResizeError
	}
	condition := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: message,
	}
	if i := slices.IndexFunc(claim.Status.Conditions, is); i < 0 {
		claim.Status.Conditions = append(claim.Status.Conditions, condition)
	} else if claim.Status.Conditions[i].Message != message {
		claim.Status.Conditions[i] = condition
	}
}

func markExpanded(claim *corev1.PersistentVolumeClaim, capacity resource.Quantity) {
	if claim.Status.Capacity == nil {
		claim.Status.Capacity = corev1.ResourceList{}
	}
	claim.Status.Capacity[corev1.ResourceStorage] = capacity
	delete(claim.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions,
		func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending ||
				c.Type == corev1.PersistentVolumeClaimResizing ||
				c.Type == corev1.PersistentVolumeClaimNodeResizeError
		})
}
