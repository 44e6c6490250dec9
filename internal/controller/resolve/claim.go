/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package resolve

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

// checkClaimIdentity: the claim exists, is the one that was pinned, and may be taken into use.
func checkClaimIdentity(f Facts) *Result {
	switch {
	case f.Claim == nil && pinned(f):
		return failed(volumesv1alpha1.ReasonClaimNotFound,
			"claim %s does not exist any more; this intent stays with its volume %s", claimName(f), f.Intent.Status.VolumeName)
	case f.Claim == nil:
		return failed(volumesv1alpha1.ReasonClaimNotFound, "claim %s does not exist", claimName(f))
	case pinned(f) && f.Intent.Status.ClaimUID != f.Claim.UID:
		return stalled(volumesv1alpha1.ReasonClaimReplaced,
			"claim %s was deleted and created again (UID %s, was %s); this intent stays with the volume %s of the first; "+
				"create another intent",
			claimName(f), f.Claim.UID, f.Intent.Status.ClaimUID, f.Intent.Status.VolumeName)
	case !f.Claim.DeletionTimestamp.IsZero() && raisedTooLate(f):
		return failed(volumesv1alpha1.ReasonClaimDeleting,
			"claim %s is being deleted: its volume %s stays attached for this intent and will not be mounted", claimName(f),
			f.Intent.Status.VolumeName)
	}
	return nil
}

// raisedTooLate: the intent has come to ask for more than Attached, and has not got its finalizer yet.
func raisedTooLate(f Facts) bool { return status.HoldsClaim(f.Intent) && !status.Finalized(f.Intent) }

// protectedForPods: the claim's deletion waits for the pods that use it, and the intent is one's. The kubelet goes by
// the same rule.
func protectedForPods(f Facts) bool {
	return ofPod(f) && slices.Contains(f.Claim.Finalizers, pvcProtection)
}

// pvcProtection is Kubernetes' own finalizer on claims, which counts pods.
const pvcProtection = "kubernetes.io/pvc-protection"

// ofPod: the intent is a pod's, whose claims the scheduler has handled. It does not see the claims of inline volumes.
func ofPod(f Facts) bool {
	_, _, ok := index.PodOf(f.Intent)
	return ok && f.Intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet
}

func checkClaimPhase(f Facts) *Result {
	switch {
	case f.Claim.Status.Phase == corev1.ClaimLost:
		return failed(
			volumesv1alpha1.ReasonClaimLost, "claim %s has lost its volume %s", claimName(f), f.Claim.Spec.VolumeName,
		)
	case f.Claim.Status.Phase == corev1.ClaimBound && f.Claim.Spec.VolumeName != "":
		return nil
	case waitsForFirstConsumer(f) && f.Claim.Annotations[storagehelpers.AnnSelectedNode] == "" &&
		!volume.Provisions(f.Class):
		return failed(volumesv1alpha1.ReasonNoProvisioner, "claim %s waits for its first consumer, and its StorageClass %s "+
			"has no provisioner. Only the scheduler can choose one of several volumes: let a pod use the claim itself once, or "+
			"set spec.volumeName of the claim", claimName(f), f.Class.Name)
	case waitsForFirstConsumer(f):
		r := failed(volumesv1alpha1.ReasonWaitForFirstConsumer,
			"claim %s waited for its first consumer; node %s was named to it and its volume is awaited", claimName(f),
			f.Intent.Spec.NodeName)
		r.SelectNode = true
		return r
	}
	return failed(volumesv1alpha1.ReasonClaimNotBound, "claim %s is not bound to a volume", claimName(f))
}

func waitsForFirstConsumer(f Facts) bool {
	return !ofPod(f) && f.Claim.Spec.VolumeName == "" && volume.WaitsForFirstConsumer(f.Class)
}
