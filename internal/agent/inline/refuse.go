/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// explainAbsent reads live why the node's cache does not have the intent. It returns no error for an intent that the
// cache will have in a moment, or that the manager has yet to create.
func (p *Plugin) explainAbsent(ctx context.Context, r request) error {
	intent, err := p.Intents.Live(ctx, r.intent)
	switch {
	case apierrors.IsNotFound(err) && r.claim != "":
		return nil
	case apierrors.IsNotFound(err):
		return status.Errorf(codes.NotFound, "VolumeAttachmentIntent %s does not exist", r.intent)
	case err != nil:
		p.Log.Info("an intent that a pod names cannot be read", "intent", r.intent, "pod", r.pod, "error", err.Error())
		return nil // the API server may answer before the call has to end
	case intent.Spec.NodeName != p.NodeName:
		return refused("VolumeAttachmentIntent %s is for node %s, and this pod is on node %s", r.intent,
			intent.Spec.NodeName, p.NodeName)
	}
	return refuse(r, intent)
}

// refuse returns why the pod never gets the volume of this intent, as it is.
func refuse(r request, intent *volumesv1alpha1.VolumeAttachmentIntent) error {
	owner := ownerPod(intent)
	switch {
	case !intent.DeletionTimestamp.IsZero():
		return refused("VolumeAttachmentIntent %s is being deleted", r.intent)
	case r.claim != "" && !madeFor(r, intent):
		return refused("VolumeAttachmentIntent %s was not created by Hawser for this pod; delete it", r.intent)
	case r.claim == "" && owner != "":
		return refused("VolumeAttachmentIntent %s belongs to the pod with UID %s; name its claim instead", r.intent, owner)
	case intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet:
		return refused("VolumeAttachmentIntent %s has publisher Kubelet, so Hawser does not mount its volume", r.intent)
	case intent.Spec.DesiredState != volumesv1alpha1.DesiredPublished && intent.Spec.DesiredState != "":
		return refused("VolumeAttachmentIntent %s asks for desiredState %s; a pod needs %s", r.intent,
			intent.Spec.DesiredState, volumesv1alpha1.DesiredPublished)
	case intent.Status.VolumeMode == corev1.PersistentVolumeBlock:
		return refused("the volume of VolumeAttachmentIntent %s is a raw block device; a pod gets one from a claim",
			r.intent)
	}
	return nil
}

// madeFor reports whether the manager created the intent for the claim of this pod.
func madeFor(r request, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	claim := intent.Spec.Volume.PersistentVolumeClaim
	return ownerPod(intent) == r.pod.UID && claim != nil && claim.ClaimName == r.claim &&
		intent.Labels[volumesv1alpha1.PodUIDLabel] == string(r.pod.UID)
}

// ownerPod is the UID of the pod that the intent belongs to; empty where it belongs to none.
func ownerPod(intent *volumesv1alpha1.VolumeAttachmentIntent) types.UID {
	owner := metav1.GetControllerOf(intent)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != corev1.SchemeGroupVersion.String() {
		return ""
	}
	return owner.UID
}
