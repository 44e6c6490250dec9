/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DesiredState is how far the agent brings a volume on its node.
// +kubebuilder:validation:Enum=Attached;Staged;Published
type DesiredState string

const (
	// DesiredAttached wants the volume attached to the node, and nothing more.
	DesiredAttached DesiredState = "Attached"
	// DesiredStaged wants the volume staged: mounted (or mapped) once on the node, so that a publish is quick.
	DesiredStaged DesiredState = "Staged"
	// DesiredPublished wants the volume usable at the intent's own path.
	DesiredPublished DesiredState = "Published"
)

// Publisher is the program that mounts the volume.
// +kubebuilder:validation:Enum=Agent;Kubelet
type Publisher string

const (
	// PublisherAgent means that Hawser's agent stages and publishes the volume.
	PublisherAgent Publisher = "Agent"
	// PublisherKubelet means that Hawser attaches the volume and the kubelet mounts it.
	PublisherKubelet Publisher = "Kubelet"
)

// VolumeAttachmentIntentSpec is which volume is wanted on which node, and in which state.
// +kubebuilder:validation:XValidation:rule="!has(self.publisher) || self.publisher != 'Kubelet' || (has(self.desiredState) && self.desiredState == 'Attached')",message="with publisher Kubelet the kubelet mounts the volume, so desiredState must be Attached",fieldPath=".desiredState"
// +kubebuilder:validation:XValidation:rule="!has(self.publisher) || self.publisher != 'Kubelet' || !has(self.mount)",message="with publisher Kubelet the kubelet mounts the volume, so mount must not be set",fieldPath=".mount"
// +kubebuilder:validation:XValidation:rule="!has(self.volume.podVolume) || (has(self.publisher) && self.publisher == 'Kubelet')",message="only the kubelet can mount a podVolume, so publisher must be Kubelet",fieldPath=".publisher"
type VolumeAttachmentIntentSpec struct {
	// nodeName names the Node on which the volume is wanted. To move a volume, create an intent
	// for the other node and delete this one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="nodeName must be the name of a Node: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName cannot be changed; create an intent for the other node and delete this one"
	// +required
	NodeName string `json:"nodeName,omitempty"`

	// volume is the volume that is wanted on the node.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volume cannot be changed; create another intent"
	// +required
	Volume VolumeSource `json:"volume,omitzero"`

	// desiredState is how far the agent brings the volume. It may be raised and lowered.
	// +default="Published"
	// +optional
	DesiredState DesiredState `json:"desiredState,omitempty"`

	// readOnly publishes the volume read-only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// publisher is the program that mounts the volume: Hawser's agent, or the kubelet.
	// +default="Agent"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="publisher cannot be changed; create another intent"
	// +optional
	Publisher Publisher `json:"publisher,omitempty"`

	// mount is specific to this intent's publication of a filesystem. Must be absent for a Block volume.
	// +optional
	Mount *MountSpec `json:"mount,omitempty"`

	// detachPolicy allows time alone to force a detach from a node that is not Ready.
	// Without it, time alone never does.
	// +optional
	DetachPolicy *DetachPolicy `json:"detachPolicy,omitempty"`

	// onNodeDeletion is what becomes of the intent when its Node is being deleted, or is gone. Keep leaves it to its
	// author. With Release the manager deletes it, so that the agent releases the volume as ever and whoever
	// removes the node, such as an autoscaler, need not wait for the author.
	// +default="Keep"
	// +optional
	OnNodeDeletion OnNodeDeletion `json:"onNodeDeletion,omitempty"`
}

// VolumeSource names one volume.
// +kubebuilder:validation:XValidation:rule="[has(self.persistentVolumeClaim), has(self.podVolume)].filter(x, x).size() == 1",message="exactly one volume source must be set: persistentVolumeClaim or podVolume"
type VolumeSource struct {
	// persistentVolumeClaim names a claim in the intent's own namespace.
	// +optional
	PersistentVolumeClaim *PersistentVolumeClaimSource `json:"persistentVolumeClaim,omitempty"`

	// podVolume names an inline volume of a pod, of a plugin that was once built into Kubernetes (such as
	// gcePersistentDisk). Hawser creates such intents for pods. Only the kubelet can mount the volume.
	// +optional
	PodVolume *PodVolumeSource `json:"podVolume,omitempty"`
}

// PodVolumeSource names an inline volume of a pod in the intent's own namespace.
type PodVolumeSource struct {
	// podName is the pod's name. The pod has to be bound to the intent's node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="podName must be the name of a Pod: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	// +required
	PodName string `json:"podName,omitempty"`

	// volumeName is the volume's name in the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="volumeName must be the name of one of the pod's volumes: lower case letters, digits and '-', beginning and ending with a letter or digit"
	// +required
	VolumeName string `json:"volumeName,omitempty"`
}

// PersistentVolumeClaimSource names a claim in the intent's own namespace.
type PersistentVolumeClaimSource struct {
	// claimName is the claim's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="claimName must be the name of a PersistentVolumeClaim: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	// +required
	ClaimName string `json:"claimName,omitempty"`
}

// MountSpec is specific to one publication of a filesystem.
// +kubebuilder:validation:XValidation:rule="!has(self.seLinuxOptions) || has(self.seLinuxOptions.level) && self.seLinuxOptions.level.matches('^[a-zA-Z0-9_.,:-]{1,256}$')",message="seLinuxOptions need a level such as s0:c123,c456; without one the container runtime chooses it, and the volume would get another",fieldPath=".seLinuxOptions"
// +kubebuilder:validation:XValidation:rule="!has(self.seLinuxOptions) || (!has(self.seLinuxOptions.user) || self.seLinuxOptions.user.matches('^[a-zA-Z0-9_.]{0,256}$')) && (!has(self.seLinuxOptions.role) || self.seLinuxOptions.role.matches('^[a-zA-Z0-9_.]{0,256}$')) && (!has(self.seLinuxOptions.type) || self.seLinuxOptions.type.matches('^[a-zA-Z0-9_.]{0,256}$'))",message="user, role and type of seLinuxOptions have letters, digits, '_' and '.'",fieldPath=".seLinuxOptions"
type MountSpec struct {
	// options are used when the volume is published, never when it is staged: noexec, nodev, nosuid, noatime,
	// nodiratime, relatime and lazytime. Administrators can set others in mountOptions of the PersistentVolume or
	// StorageClass.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self in ['noexec', 'nodev', 'nosuid', 'noatime', 'nodiratime', 'relatime', 'lazytime']",message="an intent may ask for the mount options noexec, nodev, nosuid, noatime, nodiratime, relatime and lazytime; an administrator can set others in mountOptions of the PersistentVolume or StorageClass; for a read-only volume set readOnly"
	// +optional
	Options []string `json:"options,omitempty"`

	// fsGroup is the group ID that owns the published files. All intents that publish the volume on one node must
	// name the same group.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	FSGroup *int64 `json:"fsGroup,omitempty"`

	// fsGroupChangePolicy is when ownership is set: on every publish (Always), or only if the root of the volume has
	// another owner (OnRootMismatch).
	// +kubebuilder:validation:Enum=OnRootMismatch;Always
	// +optional
	FSGroupChangePolicy *corev1.PodFSGroupChangePolicy `json:"fsGroupChangePolicy,omitempty"`

	// seLinuxOptions are those of the processes that use the volume. On a node with SELinux, a filesystem of a driver
	// whose CSIDriver has seLinuxMount is mounted with the label of their container files, as for a pod: user and level
	// are theirs. All intents that have the volume staged or published on one node must name the same. A level is needed.
	// Elsewhere they have no effect, but a driver without seLinuxMount is refused on such a node.
	// +optional
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`

	// subPath publishes a directory inside the volume instead of its root. The directory must exist. The agent
	// does not follow symbolic links that lead out of the volume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/')",message="subPath must be relative to the root of the volume"
	// +kubebuilder:validation:XValidation:rule="self.split('/').all(p, p != '..' && p != '.' && p != '')",message="subPath must not contain '.', '..' or empty parts"
	// +optional
	SubPath string `json:"subPath,omitempty"`
}

// OnNodeDeletion is what becomes of an intent whose Node is being deleted, or is gone.
// +kubebuilder:validation:Enum=Keep;Release
type OnNodeDeletion string

const (
	// OnNodeDeletionKeep leaves the intent to its author.
	OnNodeDeletionKeep OnNodeDeletion = "Keep"
	// OnNodeDeletionRelease deletes the intent.
	OnNodeDeletionRelease OnNodeDeletion = "Release"
)

// DetachPolicy says when a detach may be forced.
type DetachPolicy struct {
	// forceAfter forces a detach once the node was not Ready, or absent, for this long: hours, minutes and seconds
	// such as 6m or 1h30m, from 1m to 720h. Warning: data that the node had not yet written is lost.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="forceAfter must be a duration from 1m to 720h, in hours, minutes and seconds such as 6m or 1h30m"
	// +required
	ForceAfter metav1.Duration `json:"forceAfter"`
}

// VolumeAttachmentIntentStatus is the progress of the intent.
type VolumeAttachmentIntentStatus struct {
	// observedGeneration is the generation that Ready is about. It is -1 until the first reconcile.
	// +default=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// claimUID pins the claim, or the pod of a podVolume. Another object with the same name is not accepted.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`

	// volumeName is the name of the PersistentVolume that the intent resolved to. Empty for a podVolume.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	VolumeName string `json:"volumeName,omitempty"`

	// volumeUID pins the PersistentVolume.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	VolumeUID types.UID `json:"volumeUID,omitempty"`

	// uniqueVolumeName is the volume's name in NodeVolumeStates: kubernetes.io/csi/<driver>^<handle>.
	// +kubebuilder:validation:MaxLength=2130
	// +optional
	UniqueVolumeName string `json:"uniqueVolumeName,omitempty"`

	// volumeMode is Filesystem or Block.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`

	// capacity of the volume as the node sees it.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`

	// path is where the volume can be used on the node: a directory, or a device node for a Block volume.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Path string `json:"path,omitempty"`

	// devicePath is the block device of the volume, if known.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	DevicePath string `json:"devicePath,omitempty"`

	// conditions are Resolved, Attached, Staged, Published, Expanded, Ready and Stalled. Both writers update the
	// whole status, at the version that they read.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastError is the error of the operation that the intent waits for. Absent while nothing fails.
	// +optional
	LastError *OperationError `json:"lastError,omitempty"`

	// timeline is when each state was reached.
	// +optional
	Timeline *Timeline `json:"timeline,omitempty"`
}

// OperationError describes a failing operation.
type OperationError struct {
	// operation that failed: resolve, attach, detach, stage, publish, expand, unpublish or unstage.
	// +kubebuilder:validation:Enum=resolve;attach;detach;stage;publish;expand;unpublish;unstage
	// +required
	Operation string `json:"operation,omitempty"`
	// code is the gRPC code's name, or a reason.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Code string `json:"code,omitempty"`
	// message of the error, without secrets.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// attempts of the operation so far.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// nextAttemptTime is when the operation is retried. Absent when it waits for an event instead.
	// +optional
	NextAttemptTime *metav1.MicroTime `json:"nextAttemptTime,omitempty"`
}

// Timeline is when each state was reached, with microseconds.
type Timeline struct {
	// requested is when the cluster controller first saw the intent.
	// +optional
	Requested *metav1.MicroTime `json:"requested,omitempty"`
	// attached is when Attached last became True.
	// +optional
	Attached *metav1.MicroTime `json:"attached,omitempty"`
	// staged is when Staged last became True.
	// +optional
	Staged *metav1.MicroTime `json:"staged,omitempty"`
	// published is when Published last became True.
	// +optional
	Published *metav1.MicroTime `json:"published,omitempty"`
}

// VolumeAttachmentIntent requests a volume on a node, in a desired state.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vai,categories=hawser
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.volume.persistentVolumeClaim.claimName`
// +kubebuilder:selectablefield:JSONPath=`.status.volumeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.volume.persistentVolumeClaim.claimName`
// +kubebuilder:printcolumn:name="Desired",type=string,JSONPath=`.spec.desiredState`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.status.volumeName`,priority=1
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.status.path`,priority=1
// +kubebuilder:printcolumn:name="Expansion",type=string,JSONPath=`.status.conditions[?(@.type=="Expanded")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeAttachmentIntent struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is that of every object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the requested volume, node and state.
	// +required
	Spec VolumeAttachmentIntentSpec `json:"spec,omitzero"`

	// status is the progress of the intent.
	// +default={"observedGeneration":-1}
	// +optional
	Status VolumeAttachmentIntentStatus `json:"status,omitzero"`
}

// VolumeAttachmentIntentList is a list of intents.
// +kubebuilder:object:root=true
type VolumeAttachmentIntentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeAttachmentIntent `json:"items"`
}
