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
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/install"
)

const (
	// Claim finds intents, and pods that use volumes, by "namespace/claimName"; a volume in a pod itself is one of its
	// claims.
	Claim = "hawser.claim"
	// Volume finds intents, PersistentVolumes, NodeVolumeStates and Nodes, which list what is attached, by unique volume
	// name; also pods that have the volume in themselves, and VolumeAttachments that do or that Hawser has named it on.
	Volume = "hawser.volume"
	// Node finds intents, pods that use volumes, VolumeAttachments and the ConfigMaps with claims of exclusive volumes
	// by node name. Also the Roles and RoleBindings with which the node's agent reads Secrets.
	Node = "hawser.node"
	// PersistentVolume finds VolumeAttachments by PersistentVolume name.
	PersistentVolume = "hawser.persistentVolume"
	// NodeClaim finds pods by "node/namespace/claimName".
	NodeClaim = "hawser.nodeClaim"
	// Pod finds pod intents by "namespace/podName".
	Pod = "hawser.pod"
	// Set finds the intents of a VolumeAttachmentIntentSet by "namespace/setName".
	Set = "hawser.set"
	// InlineClaim finds pods that name a claim in an inline volume by "namespace/claimName", whether they have a node or
	// not.
	InlineClaim = "hawser.inlineClaim"
	// InlineIntent finds gated pods that name an intent in an inline volume by "namespace/intentName".
	InlineIntent = "hawser.inlineIntent"
	// Gated finds pods with the gate of their placement by why they wait, and all of them by AnyReason.
	Gated = "hawser.gated"
)

// AnyReason is the key of all pods in index Gated.
const AnyReason = "*"

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
		{&volumesv1alpha1.VolumeAttachmentIntent{}, Pod, intentPod},
		{&volumesv1alpha1.VolumeAttachmentIntent{}, Set, intentSet},
		{&volumesv1alpha1.NodeVolumeState{}, Volume, stateVolumes},
		{&corev1.Node{}, Volume, nodeVolumes},
		{&corev1.PersistentVolume{}, Volume, persistentVolumeVolume},
		{&storagev1.VolumeAttachment{}, PersistentVolume, attachmentPersistentVolume},
		{&storagev1.VolumeAttachment{}, Volume, attachmentVolume},
		{&storagev1.VolumeAttachment{}, Node, attachmentNode},
		{&corev1.ConfigMap{}, Node, lockNodes},
		{&corev1.Pod{}, NodeClaim, podNodeClaims},
		{&corev1.Pod{}, Claim, podClaims},
		{&corev1.Pod{}, Volume, podVolumes},
		{&corev1.Pod{}, Node, podNode},
		{&corev1.Pod{}, InlineClaim, podInlineClaims},
		{&corev1.Pod{}, InlineIntent, podInlineIntents},
		{&corev1.Pod{}, Gated, podGated},
		{&rbacv1.Role{}, Node, accountNode},
		{&rbacv1.RoleBinding{}, Node, accountNode},
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
	if v := intent.Spec.Volume.PodVolume; v != nil {
		return []string{ClaimKey(intent.Namespace, volume.InlineClaim(v.PodName, v.VolumeName))}
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

func nodeVolumes(o client.Object) []string {
	var keys []string
	for _, v := range o.(*corev1.Node).Status.VolumesAttached {
		if volume.IsUniqueName(string(v.Name)) {
			keys = append(keys, string(v.Name))
		}
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

func attachmentVolume(o client.Object) []string {
	return nonEmpty(volume.AttachedUniqueName(o.(*storagev1.VolumeAttachment)))
}

func attachmentNode(o client.Object) []string {
	return nonEmpty(o.(*storagev1.VolumeAttachment).Spec.NodeName)
}

// accountNode is the node whose agent reads Secrets by the Role or RoleBinding.
func accountNode(o client.Object) []string { return nonEmpty(install.NodeOfAccount(o.GetName())) }

// lockNodes are the nodes that hold the locks of exclusive volumes and those that they are being moved from. What
// cannot be read is reported by its next reader.
func lockNodes(o client.Object) []string {
	volumes, _ := exclusive.ByNode(o.(*corev1.ConfigMap))
	return slices.Sorted(maps.Keys(volumes))
}
