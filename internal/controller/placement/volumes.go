/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	corev1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// allowed are the nodes that the volume can be used on, or what is waited for.
func (v *volumeFacts) allowed(namespace string) (alternatives, *waiting) {
	switch {
	case v.invalid != "":
		return nil, waitFor(volumesv1alpha1.ReasonAttributesInvalid, "%s", v.invalid)
	case v.intentName != "":
		return v.ofIntent(namespace + "/" + v.intentName)
	}
	name := namespace + "/" + v.claimName
	switch {
	case v.claim == nil:
		return nil, waitFor(volumesv1alpha1.ReasonClaimNotFound, "claim %s does not exist; create it", name)
	case !v.claim.DeletionTimestamp.IsZero():
		return nil, waitFor(volumesv1alpha1.ReasonClaimDeleting, "claim %s is being deleted", name)
	case v.claim.Status.Phase == corev1.ClaimLost:
		return nil, waitFor(volumesv1alpha1.ReasonClaimLost, "claim %s has lost its volume %s", name, v.claim.Spec.VolumeName)
	case v.claim.Spec.VolumeMode != nil && *v.claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return nil, waitFor(volumesv1alpha1.ReasonVolumeModeMismatch, "claim %s has volumeMode Block. An inline volume is "+
			"always a filesystem; use the claim itself, with volumeDevices", name)
	case v.bound():
		return v.ofBound(name)
	}
	return v.ofUnbound(name)
}

func (v *volumeFacts) ofIntent(name string) (alternatives, *waiting) {
	switch {
	case v.intent == nil:
		return nil, waitFor(volumesv1alpha1.ReasonIntentNotFound, "intent %s does not exist; create it", name)
	case !v.intent.DeletionTimestamp.IsZero():
		return nil, waitFor(volumesv1alpha1.ReasonIntentDeleting, "intent %s is being deleted", name)
	case v.node == nil:
		return nil, waitFor(volumesv1alpha1.ReasonNodeNotFound, "node %s of intent %s does not exist",
			v.intent.Spec.NodeName, name)
	}
	return pin(v.node.Name), nil
}

func (v *volumeFacts) ofBound(name string) (alternatives, *waiting) {
	volumeName := v.claim.Spec.VolumeName
	switch {
	case v.pv == nil:
		return nil, waitFor(volumesv1alpha1.ReasonVolumeNotFound, "volume %s of claim %s does not exist", volumeName, name)
	case v.pv.Spec.ClaimRef == nil || v.pv.Spec.ClaimRef.UID != v.claim.UID:
		return nil, waitFor(volumesv1alpha1.ReasonVolumeBoundElsewhere, "volume %s is not bound to claim %s", volumeName,
			name)
	case v.pvErr != nil:
		return nil, waitFor(volumesv1alpha1.ReasonVolumeNotSupported, "volume %s of claim %s cannot be used: %v", volumeName,
			name, v.pvErr)
	case volume.DriverOf(v.pv) == "":
		return nil, waitFor(volumesv1alpha1.ReasonVolumeNotSupported, "volume %s of claim %s is not provided by a CSI driver",
			volumeName, name)
	}
	return ofVolume(v.pv), nil
}

// ofUnbound are the nodes that a volume may yet be created for.
func (v *volumeFacts) ofUnbound(name string) (alternatives, *waiting) {
	className := storagehelpers.GetPersistentVolumeClaimClass(v.claim)
	switch {
	case className != "" && v.class == nil && v.claim.Spec.VolumeName == "": // Otherwise the class was not read.
		return nil, waitFor(volumesv1alpha1.ReasonStorageClassNotFound, "StorageClass %s of claim %s does not exist",
			className, name)
	case v.claim.Spec.VolumeName != "" || !volume.WaitsForFirstConsumer(v.class):
		return nil, waitFor(volumesv1alpha1.ReasonClaimNotBound, "claim %s is not bound to a volume", name)
	case v.selected() != "" && v.node == nil:
		return nil, waitFor(volumesv1alpha1.ReasonNodeNotFound, "node %s, which was selected for claim %s, does not exist",
			v.selected(), name)
	case v.selected() != "":
		return pin(v.node.Name), nil
	case !volume.Provisions(v.class):
		return nil, waitFor(volumesv1alpha1.ReasonNoProvisioner, "claim %s waits for its first consumer, and its "+
			"StorageClass %s has no provisioner. Only the scheduler can choose one of several volumes: let a pod use the claim "+
			"itself once, or set spec.volumeName of the claim", name, className)
	}
	return ofTopologies(v.class), nil
}

// selected is the node that was selected for a claim without a volume; empty for none.
func (v *volumeFacts) selected() string { return v.claim.Annotations[cached.SelectedNodeAnnotation] }

// unplaced reports whether the claim waits for its first consumer, and no node was selected.
func (v *volumeFacts) unplaced() bool {
	return v.claimName != "" && v.claim != nil && !v.bound() && v.selected() == ""
}

// exclusive reports whether the volume may be usable on one node only.
func (v *volumeFacts) exclusive() bool {
	switch {
	case v.claimName == "" || v.claim == nil:
		return false
	case v.pv != nil:
		return volume.Exclusive(v.pv)
	}
	return !volume.Shared(v.claim.Spec.AccessModes)
}

// single reports whether only one of several pods may be placed at a time: the node of the first decides about the
// others.
func (v *volumeFacts) single() bool { return v.unplaced() || v.exclusive() }

// singleUser reports whether the volume may be used by one user only.
func (v *volumeFacts) singleUser() bool {
	modes := v.claim.Spec.AccessModes
	if v.pv != nil {
		modes = v.pv.Spec.AccessModes
	}
	for _, m := range modes {
		if m == corev1.ReadWriteOncePod {
			return true
		}
	}
	return false
}
