/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AttachmentState is the controller's decision on one attachment.
// +kubebuilder:validation:Enum=Attached;Detaching
type AttachmentState string

const (
	// AttachmentAttached means that the volume is attached and the node may use it.
	AttachmentAttached AttachmentState = "Attached"
	// AttachmentDetaching means that the volume is detached, or soon will be. It is final for its attachmentUID.
	AttachmentDetaching AttachmentState = "Detaching"
)

// EvidenceType is why a detach was safe, or which policy or administrator accepted the risk.
// +kubebuilder:validation:Enum=AgentReleased;OutOfServiceTaint;NodeGone;ForcedAfterTimeout;DeclaredByAdministrator;AttachmentLost;Fenced
type EvidenceType string

const (
	// EvidenceAgentReleased means that the node's agent reported that the volume is not in use.
	EvidenceAgentReleased EvidenceType = "AgentReleased"
	// EvidenceOutOfServiceTaint means that the Node carries node.kubernetes.io/out-of-service.
	EvidenceOutOfServiceTaint EvidenceType = "OutOfServiceTaint"
	// EvidenceNodeGone means that a manager saw the Node go while its machine was out of reach, and that the agent has not
	// been heard for five minutes.
	EvidenceNodeGone EvidenceType = "NodeGone"
	// EvidenceForcedAfterTimeout means that a policy allowed force and the node was not Ready, or absent, for that
	// long.
	EvidenceForcedAfterTimeout EvidenceType = "ForcedAfterTimeout"
	// EvidenceDeclaredByAdministrator means that a cluster administrator declared this attachment unused.
	EvidenceDeclaredByAdministrator EvidenceType = "DeclaredByAdministrator"
	// EvidenceAttachmentLost means that something other than Hawser had deleted the VolumeAttachment.
	EvidenceAttachmentLost EvidenceType = "AttachmentLost"
	// EvidenceFenced means that an object of a fence source shows that the machine is off or gone, or that its access to
	// the volume is cut.
	EvidenceFenced EvidenceType = "Fenced"
)

// DetachEvidence records why a volume was detached.
type DetachEvidence struct {
	// type of the evidence.
	// +required
	Type EvidenceType `json:"type,omitempty"`
	// time of the decision.
	// +required
	Time metav1.Time `json:"time"`
	// bootID of the node at that time, where known.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	BootID string `json:"bootID,omitempty"`
	// unprotected is true when the driver is not known to cut the node's access when it unpublishes.
	// A mount that is left on the node may then still write to the volume. With a fence that proves AccessCut it is false
	// until that fence is lifted before the node's agent has reported that the volume is not in use.
	// +optional
	Unprotected bool `json:"unprotected,omitempty"`
	// mountTableOnly is true when the agent's report is based on the mount table alone.
	// The volume has no block device that the agent could open exclusively.
	// +optional
	MountTableOnly bool `json:"mountTableOnly,omitempty"`
	// fence of evidence Fenced.
	// +optional
	Fence *FenceReference `json:"fence,omitempty"`
	// message describes what the decision was based on.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
}

// AttachmentProtocol holds the registers of one entry. Only the manager writes them, and only in attach mode Replace.
type AttachmentProtocol struct {
	// unlistedGeneration is the generation of this object since which the Node's volumesAttached omits the volume.
	// The manager deletes the attachment once the agent has reconciled that generation (status.observedGeneration)
	// and did not find the volume.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UnlistedGeneration int64 `json:"unlistedGeneration,omitempty"`

	// unlistedBootID is the boot ID of the Node when a forced detach removed the volume from its volumesAttached.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	UnlistedBootID string `json:"unlistedBootID,omitempty"`

	// rebootGeneration is the generation at which the manager asks the agent of a rebooted node to check its mounts
	// again. The attachment is gone and the node has booted since unlistedBootID. If the agent finds no mount, the
	// manager frees the attachment's name. It does so even if the kubelet lists the volume in use for a waiting pod.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RebootGeneration int64 `json:"rebootGeneration,omitempty"`
}

// NodeAttachment is one volume that is attached to the node: everything the node needs to mount it.
type NodeAttachment struct {
	// volumeName is the unique name that the kubelet would use: kubernetes.io/csi/<driver>^<handle>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2130
	// +required
	VolumeName string `json:"volumeName,omitempty"`

	// attachmentUID is the UID of the VolumeAttachment. Every flag of the entry is about this one attachment.
	// For a driver without attach the controller generates an identifier.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`

	// attachmentName is the VolumeAttachment's name. Empty for a driver without attach.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	AttachmentName string `json:"attachmentName,omitempty"`

	// state is Attached or Detaching. Detaching is final for the attachmentUID.
	// +required
	State AttachmentState `json:"state,omitempty"`

	// evidence for the detach. Set together with Detaching.
	// +optional
	Evidence *DetachEvidence `json:"evidence,omitempty"`

	// detachedTime is when the controller saw that the attachment is gone. After a forced detach the entry stays
	// until the node's agent confirms that no mount of the attachment is left.
	// +optional
	DetachedTime *metav1.Time `json:"detachedTime,omitempty"`

	// detachError is the last error of the driver's attacher, which keeps retrying. Only with Detaching.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	DetachError string `json:"detachError,omitempty"`

	// protocol is what the manager sets for the agent on this attachment. Internal and unstable: it may change in any
	// minor release, so nothing else may depend on it. Absent means that every field is zero.
	// +optional
	Protocol AttachmentProtocol `json:"protocol,omitzero"`

	// namespace of the intents that the volume is attached for. All entries of one namespace share what it may take of
	// this object's size.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// driver is the CSI driver's name.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Driver string `json:"driver,omitempty"`
	// volumeHandle is the driver's identifier of the volume.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	VolumeHandle string `json:"volumeHandle,omitempty"`
	// persistentVolumeName names the PersistentVolume.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PersistentVolumeName string `json:"persistentVolumeName,omitempty"`
	// volumeMode is Filesystem or Block.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// accessModes of the PersistentVolume.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Type=string
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// fsType of the PersistentVolume.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	FSType string `json:"fsType,omitempty"`
	// mountOptions of the PersistentVolume.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	// +optional
	MountOptions []string `json:"mountOptions,omitempty"`
	// volumeAttributes of the PersistentVolume.
	// +optional
	VolumeAttributes map[string]string `json:"volumeAttributes,omitempty"`
	// capacity of the PersistentVolume. If it is larger than the node has seen, the agent expands the volume.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// expandFrom is the capacity in the claim's status while that is less than capacity. The volume has grown and no
	// node has expanded it yet. Absent when no expansion is due.
	// +optional
	ExpandFrom *resource.Quantity `json:"expandFrom,omitempty"`
	// publishContext is what the driver's ControllerPublishVolume returned.
	// +optional
	PublishContext map[string]string `json:"publishContext,omitempty"`
	// fsGroupPolicy of the CSIDriver: ReadWriteOnceWithFSType, File or None.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	FSGroupPolicy storagev1.FSGroupPolicy `json:"fsGroupPolicy,omitempty"`
	// seLinuxMount of the CSIDriver: on a node with SELinux the volume is mounted with the label of its users.
	// +optional
	SELinuxMount bool `json:"seLinuxMount,omitempty"`
	// nodeStageSecretRef names the Secret for NodeStageVolume.
	// +optional
	NodeStageSecretRef *corev1.SecretReference `json:"nodeStageSecretRef,omitempty"`
	// nodePublishSecretRef names the Secret for NodePublishVolume.
	// +optional
	NodePublishSecretRef *corev1.SecretReference `json:"nodePublishSecretRef,omitempty"`
	// nodeExpandSecretRef names the Secret for NodeExpandVolume.
	// +optional
	NodeExpandSecretRef *corev1.SecretReference `json:"nodeExpandSecretRef,omitempty"`
}
