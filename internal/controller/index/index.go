/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package index names the field indexes of the manager's cache. They make the cost of one
// change depend on the volume that changed, not on how many there are.
package index

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

const (
	// Claim finds intents by "namespace/claimName".
	Claim = "hawser.claim"
	// Volume finds intents, PersistentVolumes and NodeVolumeStates by unique volume name.
	Volume = "hawser.volume"
	// Node finds intents, VolumeAttachments and the claims of exclusive volumes by node name.
	Node = "hawser.node"
	// PersistentVolume finds VolumeAttachments and NodeVolumeStates by PersistentVolume name.
	PersistentVolume = "hawser.persistentVolume"
	// NodeClaim finds pods by "node/namespace/claimName".
	NodeClaim = "hawser.nodeClaim"
)

// Register adds every index to the cache.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		field  string
		keys   client.IndexerFunc
	}{
		{&volumesv1alpha1.VolumeAttachmentIntent{}, Claim, intentClaim},
		{&volumesv1alpha1.VolumeAttachmentIntent{}, Volume, intentVolume},
		{&volumesv1alpha1.VolumeAttachmentIntent{}, Node, intentNode},
		{&volumesv1alpha1.NodeVolumeState{}, Volume, stateVolumes},
		{&volumesv1alpha1.NodeVolumeState{}, PersistentVolume, statePersistentVolumes},
		{&corev1.PersistentVolume{}, Volume, persistentVolumeVolume},
		{&storagev1.VolumeAttachment{}, PersistentVolume, attachmentPersistentVolume},
		{&storagev1.VolumeAttachment{}, Node, attachmentNode},
		{&coordinationv1.Lease{}, Node, claimNodes},
		{&corev1.Pod{}, NodeClaim, podClaims},
	} {
		if err := indexer.IndexField(ctx, i.object, i.field, i.keys); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.object, i.field, err)
		}
	}
	return nil
}

// ClaimKey is the key of a claim in index Claim.
func ClaimKey(namespace, claim string) string { return namespace + "/" + claim }

// NodeClaimKey is the key of a claim on a node in index NodeClaim.
func NodeClaimKey(node, namespace, claim string) string { return node + "/" + namespace + "/" + claim }

func nonEmpty(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}

func intentClaim(o client.Object) []string {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if claim := intent.Spec.Volume.PersistentVolumeClaim; claim != nil {
		return []string{ClaimKey(intent.Namespace, claim.ClaimName)}
	}
	return nil
}

func intentVolume(o client.Object) []string {
	return nonEmpty(o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.UniqueVolumeName)
}

func intentNode(o client.Object) []string {
	return nonEmpty(o.(*volumesv1alpha1.VolumeAttachmentIntent).Spec.NodeName)
}

func stateVolumes(o client.Object) []string {
	nvs := o.(*volumesv1alpha1.NodeVolumeState)
	keys := make([]string, 0, len(nvs.Spec.Attachments)+len(nvs.Status.Volumes))
	for i := range nvs.Spec.Attachments {
		keys = append(keys, nvs.Spec.Attachments[i].VolumeName)
	}
	for i := range nvs.Status.Volumes {
		keys = append(keys, nvs.Status.Volumes[i].VolumeName)
	}
	return keys
}

func statePersistentVolumes(o client.Object) []string {
	nvs := o.(*volumesv1alpha1.NodeVolumeState)
	keys := make([]string, 0, len(nvs.Spec.Attachments))
	for i := range nvs.Spec.Attachments {
		keys = append(keys, nvs.Spec.Attachments[i].PersistentVolumeName)
	}
	return keys
}

func persistentVolumeVolume(o client.Object) []string {
	return nonEmpty(volume.UniqueNameOf(o.(*corev1.PersistentVolume)))
}

func attachmentPersistentVolume(o client.Object) []string {
	va := o.(*storagev1.VolumeAttachment)
	if va.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	return []string{*va.Spec.Source.PersistentVolumeName}
}

func attachmentNode(o client.Object) []string {
	return nonEmpty(o.(*storagev1.VolumeAttachment).Spec.NodeName)
}

// claimNodes are the node that holds an exclusive volume's claim and the one that it is being moved from.
func claimNodes(o client.Object) []string {
	lease := o.(*coordinationv1.Lease)
	if lease.Annotations[volumesv1alpha1.VolumeNameAnnotation] == "" {
		return nil
	}
	return append(nonEmpty(ptr.Deref(lease.Spec.HolderIdentity, "")), nonEmpty(lease.Annotations[volumesv1alpha1.MovedFromAnnotation])...)
}

func podClaims(o client.Object) []string { return PodNodeClaims(o.(*corev1.Pod)) }

// PodNodeClaims are the keys of pod in index NodeClaim; none for one that has terminated, which uses nothing any more.
func PodNodeClaims(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var keys []string
	for _, claim := range PodClaims(pod) {
		keys = append(keys, NodeClaimKey(pod.Spec.NodeName, pod.Namespace, claim))
	}
	return keys
}

// PodClaims names the claims that pod uses, those of generic ephemeral volumes included.
func PodClaims(pod *corev1.Pod) []string {
	var claims []string
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			claims = append(claims, pod.Name+"-"+v.Name)
		}
	}
	return claims
}
