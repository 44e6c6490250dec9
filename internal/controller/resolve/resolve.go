/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package resolve finds out which volume an intent means and whether it may have it: a pure
// function of what the API holds, so that every controller comes to the same answer.
package resolve

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

// Facts are what one intent is resolved from. What does not exist is nil.
type Facts struct {
	Intent *volumesv1alpha1.VolumeAttachmentIntent
	Node   *corev1.Node
	// Pod that has the podVolume.
	Pod   *corev1.Pod
	Claim *corev1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Volume that the claim is bound to, or what the podVolume translates to.
	Volume *corev1.PersistentVolume
	// VolumeErr says why the volume's source, of a plugin that was once built into Kubernetes, translates to no CSI
	// volume.
	VolumeErr error
}

// Source of the volume; nil if it does not exist, or has none that Hawser can use.
func (f Facts) Source() *volume.Source {
	if f.Volume == nil {
		return nil
	}
	return volume.SourceOf(f.Volume)
}

// Pins are what an intent is held to from the moment it first resolved.
type Pins struct {
	ClaimUID         types.UID
	VolumeName       string
	VolumeUID        types.UID
	UniqueVolumeName string
	VolumeMode       corev1.PersistentVolumeMode
}

// Result is the answer for one intent.
type Result struct {
	// OK: the intent resolves to the volume of Pins.
	OK     bool
	Reason string
	// Message names what is missing or wrong; empty when all is well.
	Message string
	// Stalled: no retry can solve it, a user has to change something.
	Stalled bool
	// SelectNode: the claim waits for its first consumer, which is this intent.
	SelectNode bool
	Pins       Pins
	// Source of the volume; nil unless OK.
	Source *volume.Source
}

// check examines one thing; nil means that nothing is wrong with it.
type check func(Facts) *Result

// Intent resolves one intent. The first thing that is wrong is the answer.
func Intent(f Facts) Result {
	checks := []check{
		checkClaimStays, checkNode, checkClaimIdentity, checkClaimPhase, checkVolume, checkSource, checkMode, checkAccess,
		checkAffinity,
	}
	switch source := f.Intent.Spec.Volume; {
	case source.PodVolume != nil:
		checks = []check{checkNode, checkPod, checkPodVolume, checkSource}
	case source.PersistentVolumeClaim == nil:
		return unknownSource()
	}
	for _, c := range checks {
		if r := c(f); r != nil {
			return *r
		}
	}
	r := Result{OK: true, Reason: volumesv1alpha1.ReasonResolved, Pins: pins(f), Source: f.Source()}
	if f.Claim == nil {
		r.Message = fmt.Sprintf("%s is volume %s", sourceName(f), r.Pins.UniqueVolumeName)
		return r
	}
	if !f.Claim.DeletionTimestamp.IsZero() {
		r.Reason = volumesv1alpha1.ReasonClaimDeleting
		r.Message = fmt.Sprintf("claim %s is being deleted and does not wait for this intent", claimName(f))
		if status.HoldsClaim(f.Intent) {
			// It goes on being used: the claim's finalizer makes the deletion wait.
			r.Message = fmt.Sprintf("claim %s is being deleted and waits until this intent is gone", claimName(f))
		}
	}
	return r
}

// PolicyMissing is the result for an intent that resolves, while nothing new may be attached.
func PolicyMissing(why string) Result {
	return *failed(volumesv1alpha1.ReasonAdmissionPolicyMissing,
		"%s; nothing new is attached until it is: apply config/admission of this release", why)
}

// unknownSource is the result for an intent that a newer API server has accepted: the kinds are upgraded first.
func unknownSource() Result {
	return *failed(volumesv1alpha1.ReasonVolumeNotSupported,
		"this version of the manager does not know the source in spec.volume; upgrade Hawser's manager")
}

func pins(f Facts) Pins {
	return Pins{
		ClaimUID:         f.Volume.Spec.ClaimRef.UID,
		VolumeName:       f.Volume.Name,
		VolumeUID:        f.Volume.UID,
		UniqueVolumeName: volume.UniqueNameOf(f.Volume),
		VolumeMode:       volume.Mode(f.Volume),
	}
}

func failed(reason, format string, args ...any) *Result {
	return &Result{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func stalled(reason, format string, args ...any) *Result {
	r := failed(reason, format, args...)
	r.Stalled = true
	return r
}

func pinned(f Facts) bool { return f.Intent.Status.ClaimUID != "" }

func claimName(f Facts) string {
	return f.Intent.Namespace + "/" + f.Intent.Spec.Volume.PersistentVolumeClaim.ClaimName
}

// sourceName names the volume as the intent does.
func sourceName(f Facts) string {
	if v := f.Intent.Spec.Volume.PodVolume; v != nil {
		return fmt.Sprintf("volume %s of pod %s/%s", v.VolumeName, f.Intent.Namespace, v.PodName)
	}
	return fmt.Sprintf("volume %s of claim %s", f.Volume.Name, claimName(f))
}

func checkNode(f Facts) *Result {
	switch {
	case f.Node == nil:
		return failed(volumesv1alpha1.ReasonNodeNotFound, "node %s does not exist", f.Intent.Spec.NodeName)
	case !f.Node.DeletionTimestamp.IsZero() && !pinned(f):
		return failed(volumesv1alpha1.ReasonNodeDeleting, "node %s is being deleted", f.Node.Name)
	}
	return nil
}

// checkClaimStays: no claim that is being deleted comes into use. This is the first check, because the claim goes once
// it was written.
func checkClaimStays(f Facts) *Result {
	if f.Claim != nil && !f.Claim.DeletionTimestamp.IsZero() && !pinned(f) && !protectedForPods(f) {
		return failed(volumesv1alpha1.ReasonClaimDeleting, "claim %s is being deleted", claimName(f))
	}
	return nil
}

func checkVolume(f Facts) *Result {
	name := f.Claim.Spec.VolumeName
	if was := f.Intent.Status.VolumeName; was != "" && was != name {
		return stalled(
			volumesv1alpha1.ReasonVolumeReplaced, "claim %s is bound to volume %s now, was to %s", claimName(f), name, was,
		)
	}
	switch {
	case f.Volume == nil:
		return failed(volumesv1alpha1.ReasonVolumeNotFound, "volume %s of claim %s does not exist", name, claimName(f))
	case f.Intent.Status.VolumeUID != "" && f.Intent.Status.VolumeUID != f.Volume.UID:
		return stalled(volumesv1alpha1.ReasonVolumeReplaced, "volume %s was deleted and created again", name)
	case f.Volume.Spec.ClaimRef == nil:
		return failed(volumesv1alpha1.ReasonVolumeBoundElsewhere, "volume %s is not bound to claim %s", name, claimName(f))
	case f.Volume.Spec.ClaimRef.UID != f.Claim.UID:
		return failed(
			volumesv1alpha1.ReasonVolumeBoundElsewhere, "volume %s is bound to another claim, not to %s", name, claimName(f),
		)
	}
	return nil
}

// checkPod: the pod that has the volume is the one that was pinned, or that the intent belongs to, and it is
// on the node.
func checkPod(f Facts) *Result {
	if f.Pod == nil {
		return failed(volumesv1alpha1.ReasonPodNotFound, "pod %s/%s does not exist", f.Intent.Namespace,
			f.Intent.Spec.Volume.PodVolume.PodName)
	}
	_, owner, owned := index.PodOf(f.Intent)
	switch {
	case pinned(f) && f.Intent.Status.ClaimUID != f.Pod.UID, owned && owner != f.Pod.UID:
		return stalled(volumesv1alpha1.ReasonPodReplaced,
			"pod %s/%s is not the one that this intent was made for; create another intent", f.Pod.Namespace, f.Pod.Name)
	case f.Pod.Spec.NodeName != f.Intent.Spec.NodeName:
		return failed(volumesv1alpha1.ReasonPodNotOnNode, "pod %s/%s is not bound to node %s", f.Pod.Namespace, f.Pod.Name,
			f.Intent.Spec.NodeName)
	}
	return nil
}

// checkPodVolume: the pod has the volume, and it is one that may have to be attached.
func checkPodVolume(f Facts) *Result {
	if f.Volume == nil && f.VolumeErr == nil {
		return stalled(volumesv1alpha1.ReasonVolumeNotSupported,
			"%s does not exist, or has no source of a plugin that was once built into Kubernetes; "+
				"for a claim set persistentVolumeClaim",
			sourceName(f))
	}
	return nil
}

// checkSource: the volume is a CSI driver's, and the one that was pinned.
func checkSource(f Facts) *Result {
	switch was := f.Intent.Status.UniqueVolumeName; {
	case f.VolumeErr != nil:
		return stalled(volumesv1alpha1.ReasonVolumeSourceInvalid, "%s cannot be used: %v", sourceName(f), f.VolumeErr)
	case f.Source() == nil:
		return stalled(volumesv1alpha1.ReasonVolumeNotSupported, "volume %s is not provided by a CSI driver", f.Volume.Name)
	case f.Source().Unfit() != "":
		return stalled(
			volumesv1alpha1.ReasonVolumeSourceInvalid, "%s cannot be used: %s", sourceName(f), f.Source().Unfit(),
		)
	case was != "" && was != volume.UniqueNameOf(f.Volume):
		return stalled(
			volumesv1alpha1.ReasonVolumeReplaced, "%s is %s now, was %s", sourceName(f), volume.UniqueNameOf(f.Volume), was,
		)
	}
	return nil
}

// checkMode: what is mounted as a filesystem cannot be asked of a block device.
func checkMode(f Facts) *Result {
	if volume.Mode(f.Volume) == corev1.PersistentVolumeBlock && f.Intent.Spec.Mount != nil {
		return stalled(volumesv1alpha1.ReasonVolumeModeMismatch,
			"volume %s of claim %s has volumeMode Block, but the intent sets mount, which is for filesystems",
			f.Volume.Name, claimName(f))
	}
	return nil
}

// checkAccess: a volume that can only be read is not handed out for writing.
func checkAccess(f Facts) *Result {
	if f.Intent.Spec.ReadOnly || f.Intent.Spec.DesiredState != volumesv1alpha1.DesiredPublished {
		return nil
	}
	source := f.Source()
	readOnly := source.ReadOnly || onlyReadOnlyMany(source.AccessModes)
	if readOnly {
		return stalled(volumesv1alpha1.ReasonAccessModeMismatch,
			"volume %s of claim %s can only be read, but the intent does not set readOnly", f.Volume.Name, claimName(f))
	}
	return nil
}

func onlyReadOnlyMany(modes []corev1.PersistentVolumeAccessMode) bool {
	for _, m := range modes {
		if m != corev1.ReadOnlyMany {
			return false
		}
	}
	return len(modes) > 0
}

func checkAffinity(f Facts) *Result {
	if err := storagehelpers.CheckNodeAffinity(f.Volume, f.Node.Labels); err != nil {
		return failed(volumesv1alpha1.ReasonNodeAffinityMismatch,
			"volume %s of claim %s cannot be used on node %s: %v", f.Volume.Name, claimName(f), f.Node.Name, err)
	}
	return nil
}
