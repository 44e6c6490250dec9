/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// VolumeAttachmentIntentSetSpec is which nodes get an intent, and what it asks for.
// +kubebuilder:validation:XValidation:rule="has(self.claimTemplate) != (has(self.template) && has(self.template.spec) && has(self.template.spec.volume))",message="set exactly one: claimTemplate for a claim of its own on each node, or template.spec.volume for one claim that all nodes share"
type VolumeAttachmentIntentSetSpec struct {
	// nodeSelector selects the Nodes that get an intent. An empty one, {}, selects every Node. It cannot select by the
	// labels ready.volumes.hawser.io/, which follow from the intents.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, !k.startsWith('ready.volumes.hawser.io/'))",message="nodeSelector must not select by labels ready.volumes.hawser.io/: they follow from the intents of sets",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !e.key.startsWith('ready.volumes.hawser.io/'))",message="nodeSelector must not select by labels ready.volumes.hawser.io/: they follow from the intents of sets",fieldPath=".matchExpressions"
	// +required
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// template of the intents. A change of it replaces the intents node by node.
	// +default={}
	// +optional
	Template IntentTemplate `json:"template,omitzero"`

	// claimTemplate makes one claim for each node, which is kept when the node or the set goes. A change applies to
	// claims that are created later.
	// +optional
	ClaimTemplate *ClaimTemplate `json:"claimTemplate,omitempty"`

	// rollout bounds how many nodes are without their volume while a change of the template is carried out.
	// +optional
	Rollout *IntentRollout `json:"rollout,omitempty"`
}

// IntentTemplate is what the intents of a set have in common.
type IntentTemplate struct {
	// metadata that the intents get, beside that of the set.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// spec of the intents, except for the node.
	// +default={}
	// +optional
	Spec IntentTemplateSpec `json:"spec,omitzero"`
}

// TemplateMetadata is the metadata of objects that are made from a template.
type TemplateMetadata struct {
	// labels of the objects.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('hawser.io/'))",message="labels of hawser.io are set by Hawser alone"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the objects.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('hawser.io/'))",message="annotations of hawser.io are set by Hawser alone"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IntentTemplateSpec is the spec of an intent without its node. An empty one publishes the volume.
// +kubebuilder:validation:XValidation:rule="!has(self.publisher) || self.publisher != 'Kubelet' || (has(self.desiredState) && self.desiredState == 'Attached')",message="with publisher Kubelet the kubelet mounts the volume, so desiredState must be Attached",fieldPath=".desiredState"
// +kubebuilder:validation:XValidation:rule="!has(self.publisher) || self.publisher != 'Kubelet' || !has(self.mount)",message="with publisher Kubelet the kubelet mounts the volume, so mount must not be set",fieldPath=".mount"
type IntentTemplateSpec struct {
	// volume that all nodes share. Absent with a claimTemplate.
	// +optional
	Volume *TemplateVolumeSource `json:"volume,omitempty"`

	// desiredState is how far the agents bring the volume.
	// +default="Published"
	// +optional
	DesiredState DesiredState `json:"desiredState,omitempty"`

	// readOnly publishes the volume read-only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// publisher is the program that mounts the volume: Hawser's agent, or the kubelet.
	// +default="Agent"
	// +optional
	Publisher Publisher `json:"publisher,omitempty"`

	// mount is specific to the publication of a filesystem. Must be absent for a Block volume.
	// +optional
	Mount *MountSpec `json:"mount,omitempty"`

	// detachPolicy allows time alone to force a detach from a node that is not Ready.
	// +optional
	DetachPolicy *DetachPolicy `json:"detachPolicy,omitempty"`
}

// TemplateVolumeSource names the volume that the nodes of a set share.
type TemplateVolumeSource struct {
	// persistentVolumeClaim names a claim in the set's own namespace.
	// +required
	PersistentVolumeClaim PersistentVolumeClaimSource `json:"persistentVolumeClaim,omitzero"`
}

// ClaimTemplate is what the claims of a set have in common.
type ClaimTemplate struct {
	// metadata that the claims get, beside that of the set.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// spec of the claims, as Kubernetes has it.
	// +kubebuilder:validation:XValidation:rule="!has(self.volumeName)",message="volumeName must not be set: each node gets a volume of its own"
	// +required
	Spec corev1.PersistentVolumeClaimSpec `json:"spec,omitzero"`
}

// IntentRollout is the budget of a rollout.
type IntentRollout struct {
	// maxUnavailable is how many nodes may be without a ready intent before a ready one is replaced: a number, or a
	// percentage of the nodes, rounded up. Absent: 1.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// VolumeAttachmentIntentSetStatus counts the intents of a set.
type VolumeAttachmentIntentSetStatus struct {
	// observedGeneration is the generation that the counts and conditions are about. It is -1 until the first reconcile.
	// +default=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is the hash of the present template. The intents have theirs in the label volumes.hawser.io/revision.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Revision string `json:"revision,omitempty"`

	// desired is the number of nodes that are to have an intent.
	// +default=0
	// +optional
	Desired int32 `json:"desired,omitempty"`

	// current is the number of intents of the set, those that are being deleted included.
	// +default=0
	// +optional
	Current int32 `json:"current,omitempty"`

	// updated is the number of nodes whose intent has the present template.
	// +default=0
	// +optional
	Updated int32 `json:"updated,omitempty"`

	// ready is the number of nodes whose intent is Ready, with whichever template.
	// +default=0
	// +optional
	Ready int32 `json:"ready,omitempty"`

	// failing is the number of nodes whose intent is Stalled, or cannot be created.
	// +default=0
	// +optional
	Failing int32 `json:"failing,omitempty"`

	// conditions are Ready and Stalled, and NodesLabelled where Nodes get labels.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumeAttachmentIntentSet keeps one VolumeAttachmentIntent for each Node that a selector matches.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vais,categories=hawser
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a VolumeAttachmentIntentSet is the value of a label of its intents, so it must have at most 63 characters"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updated`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.failing`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeAttachmentIntentSet struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is that of every object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is which nodes get an intent, and what it asks for.
	// +required
	Spec VolumeAttachmentIntentSetSpec `json:"spec,omitzero"`

	// status counts the intents. An absent observedGeneration would be the same as a reconciled generation of 0.
	// +default={"observedGeneration":-1}
	// +optional
	Status VolumeAttachmentIntentSetStatus `json:"status,omitzero"`
}

// VolumeAttachmentIntentSetList is a list of VolumeAttachmentIntentSets.
// +kubebuilder:object:root=true
type VolumeAttachmentIntentSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeAttachmentIntentSet `json:"items"`
}
