/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package resizer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wantsMore reports whether the claim asks for more than it has, and the node is not at it already.
func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return false
	}
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	actual := claim.Status.Capacity[corev1.ResourceStorage]
	if wanted.Cmp(actual) <= 0 {
		return false
	}
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible:
		allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]
		return wanted.Cmp(allocated) > 0 // asked for still more meanwhile
	default:
		return true
	}
}

// belongs reports whether the volume is the claim's and the driver's.
func belongs(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, driver string) bool {
	return volume.Spec.CSI != nil && volume.Spec.CSI.Driver == driver && len(volume.Spec.AccessModes) > 0 &&
		volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == claim.UID
}

// started: the driver's controller is being asked for this size.
func started(wanted resource.Quantity) func(*corev1.PersistentVolumeClaimStatus) {
	return func(status *corev1.PersistentVolumeClaimStatus) {
		status.AllocatedResources = with(status.AllocatedResources, wanted)
		setStage(status, corev1.PersistentVolumeClaimControllerResizeInProgress)
		setCondition(status, corev1.PersistentVolumeClaimResizing)
	}
}

// awaitsNode: the volume has grown, its filesystem follows on the node that uses it.
func awaitsNode() func(*corev1.PersistentVolumeClaimStatus) {
	return func(status *corev1.PersistentVolumeClaimStatus) {
		setStage(status, corev1.PersistentVolumeClaimNodeResizePending)
		setCondition(status, corev1.PersistentVolumeClaimFileSystemResizePending)
	}
}

// finished: nothing is left to do.
func finished(size resource.Quantity) func(*corev1.PersistentVolumeClaimStatus) {
	return func(status *corev1.PersistentVolumeClaimStatus) {
		status.Capacity = with(status.Capacity, size)
		delete(status.AllocatedResourceStatuses, corev1.ResourceStorage)
		status.Conditions = withoutResize(status.Conditions)
	}
}

func with(list corev1.ResourceList, size resource.Quantity) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceStorage] = size
	return list
}

func setStage(status *corev1.PersistentVolumeClaimStatus, stage corev1.ClaimResourceStatus) {
	if status.AllocatedResourceStatuses == nil {
		status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	status.AllocatedResourceStatuses[corev1.ResourceStorage] = stage
}

// setCondition replaces the condition of the step before: one of them holds at a time.
func setCondition(status *corev1.PersistentVolumeClaimStatus, kind corev1.PersistentVolumeClaimConditionType) {
	status.Conditions = append(withoutResize(status.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	})
}

func withoutResize(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	})
}
