/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package index

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// PodKey is the key of a pod in index Pod.
func PodKey(namespace, pod string) string { return namespace + "/" + pod }

// Terminated reports whether pod uses nothing any more: it has ended, or it is being deleted and none of its containers
// runs. A container without a known state runs.
func Terminated(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return !pod.DeletionTimestamp.IsZero() && !Running(&pod.Status)
}

// Running reports whether any container runs, of whatever kind it is.
func Running(status *corev1.PodStatus) bool {
	for _, containers := range [][]corev1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range containers {
			if s := &containers[i].State; s.Terminated == nil && s.Waiting == nil {
				return true
			}
		}
	}
	return false
}

// UsesVolumes reports whether pod is bound to a node and has not terminated.
func UsesVolumes(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" && !Terminated(pod) }

// PodNodeClaims are the keys of pod in index NodeClaim; none for one that uses no volumes, or does not any more.
func PodNodeClaims(pod *corev1.Pod) []string {
	return claimKeys(pod, func(claim string) string { return NodeClaimKey(pod.Spec.NodeName, pod.Namespace, claim) })
}

// PodClaims names the claims that pod uses, those of generic ephemeral volumes included.
func PodClaims(pod *corev1.Pod) []string {
	var claims []string
	for i := range pod.Spec.Volumes {
		if claim := PodClaim(pod, &pod.Spec.Volumes[i]); claim != "" {
			claims = append(claims, claim)
		}
	}
	return claims
}

// PodClaim names the claim behind one volume of pod; empty when there is none. One in the pod itself counts
// as a claim of its own, under a name that no claim can have.
func PodClaim(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	case volume.MigratedInline(v):
		return volume.InlineClaim(pod.Name, v.Name)
	}
	return ""
}

func claimKeys(pod *corev1.Pod, key func(claim string) string) []string {
	if !UsesVolumes(pod) {
		return nil
	}
	claims := PodClaims(pod)
	keys := make([]string, len(claims))
	for i, claim := range claims {
		keys[i] = key(claim)
	}
	return keys
}

func podNodeClaims(o client.Object) []string { return PodNodeClaims(o.(*corev1.Pod)) }

func podClaims(o client.Object) []string {
	pod := o.(*corev1.Pod)
	return claimKeys(pod, func(claim string) string { return ClaimKey(pod.Namespace, claim) })
}

// podVolumes are the unique names of the volumes in the pod itself.
func podVolumes(o client.Object) []string {
	var names []string
	for _, pv := range volume.InlineOf(o.(*corev1.Pod)) {
		names = append(names, volume.UniqueNameOf(pv))
	}
	return names
}

func podNode(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if !UsesVolumes(pod) {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// PodOf returns the name and the UID of the pod that a pod intent, one that the pod controller made, belongs to;
// false for any other intent.
func PodOf(intent *volumesv1alpha1.VolumeAttachmentIntent) (name string, uid types.UID, ok bool) {
	owner := metav1.GetControllerOf(intent)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != corev1.SchemeGroupVersion.String() ||
		intent.Labels[volumesv1alpha1.PodUIDLabel] != string(owner.UID) {
		return "", "", false
	}
	return owner.Name, owner.UID, true
}

func intentPod(o client.Object) []string {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if name, _, ok := PodOf(intent); ok {
		return []string{PodKey(intent.Namespace, name)}
	}
	return nil
}
