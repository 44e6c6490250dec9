/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

const (
	// longestName of an object.
	longestName = 253
	// hashed is how many characters of a hash are used.
	hashed = 10
)

// IntentName is the name of a set's intent on a node, and of its claim there.
func IntentName(set, node string) string {
	name := set + "-" + node
	if len(name) <= longestName {
		return name
	}
	return strings.TrimRight(name[:longestName-1-hashed], ".-") + "-" + hash([]byte(name))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:hashed]
}

// revisionOf is the hash of the template. A field that is added to the template must be absent when it is not used:
// otherwise a new version would replace every intent of every set.
func revisionOf(set *volumesv1alpha1.VolumeAttachmentIntentSet) string {
	b, _ := json.Marshal(set.Spec.Template) // cannot fail: these are plain fields
	return hash(b)
}

// newIntent is the intent of the set on the node.
func (f facts) newIntent(node string) *volumesv1alpha1.VolumeAttachmentIntent {
	set, template := f.set, f.set.Spec.Template.DeepCopy()
	name := IntentName(set.Name, node)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name,
			Labels: with(template.Metadata.Labels, map[string]string{
				volumesv1alpha1.IntentSetLabel: set.Name, volumesv1alpha1.IntentSetUIDLabel: string(set.UID),
				volumesv1alpha1.RevisionLabel: f.revision,
			}),
			Annotations:     template.Metadata.Annotations,
			OwnerReferences: []metav1.OwnerReference{ownerReference(set)},
		},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node, Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: claimOf(set, name)},
			DesiredState: template.Spec.DesiredState, ReadOnly: template.Spec.ReadOnly, Publisher: template.Spec.Publisher,
			Mount: template.Spec.Mount, DetachPolicy: template.Spec.DetachPolicy,
		},
	}
	if status.NeedsFinalizer(intent) {
		intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	}
	return intent
}

// claimOf is the claim that all nodes share, or that of one node.
func claimOf(set *volumesv1alpha1.VolumeAttachmentIntentSet, name string) *volumesv1alpha1.PersistentVolumeClaimSource {
	if volume := set.Spec.Template.Spec.Volume; set.Spec.ClaimTemplate == nil && volume != nil {
		return volume.PersistentVolumeClaim.DeepCopy()
	}
	return &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: name}
}

// ownerReference makes the set wait for its intents where it is deleted in the foreground.
func ownerReference(set *volumesv1alpha1.VolumeAttachmentIntentSet) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "VolumeAttachmentIntentSet", Name: set.Name, UID: set.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// newClaim is the claim of the set on the node. The set does not own it: it is kept.
func (f facts) newClaim(node string) *corev1.PersistentVolumeClaim {
	template := f.set.Spec.ClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.set.Namespace, Name: IntentName(f.set.Name, node),
			Labels: with(template.Metadata.Labels, map[string]string{volumesv1alpha1.IntentSetLabel: f.set.Name}),
			Annotations: with(template.Metadata.Annotations,
				map[string]string{volumesv1alpha1.IntentSetNodeAnnotation: node}),
		},
		Spec: template.Spec,
	}
}

// isClaimOf reports whether the claim was made for a set of this name on the node: by this set, or by an earlier one.
func (f facts) isClaimOf(claim *corev1.PersistentVolumeClaim, node string) bool {
	return claim.Labels[volumesv1alpha1.IntentSetLabel] == f.set.Name &&
		claim.Annotations[volumesv1alpha1.IntentSetNodeAnnotation] == node
}

func with(users, own map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, users)
	maps.Copy(all, own)
	return all
}
