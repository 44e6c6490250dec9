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

// AttachmentState is the controller's word on one attachment.
// +kubebuilder:validation:Enum=Attached;Detaching
type AttachmentState string

const (
	// AttachmentAttached means that the volume is attached and the node may use it.
	AttachmentAttached AttachmentState = "Attached"
	// AttachmentDetaching means that the volume is, or is about to be, detached. It is final for its attachmentUID.
	AttachmentDetaching AttachmentState = "Detaching"
)

// EvidenceType says why a detach was safe, or who took the risk.
// +kubebuilder:validation:Enum=AgentReleased;OutOfServiceTaint;NodeGone;ForcedAfterTimeout;DeclaredByAdministrator;AttachmentLost
type EvidenceType string

const (
	// EvidenceAgentReleased means that the node's agent reported that the volume is not in use.
	EvidenceAgentReleased EvidenceType = "AgentReleased"
	// EvidenceOutOfServiceTaint means that the Node carries node.kubernetes.io/out-of-service.
	EvidenceOutOfServiceTaint EvidenceType = "OutOfServiceTaint"
	// EvidenceNodeGone means that the Node is absent and its agent's Lease expired long ago.
	EvidenceNodeGone EvidenceType = "NodeGone"
	// EvidenceForcedAfterTimeout means that a policy allowed force and the node was not Ready for that long.
	EvidenceForcedAfterTimeout EvidenceType = "ForcedAfterTimeout"
	// EvidenceDeclaredByAdministrator means that a cluster administrator declared this attachment unused.
	EvidenceDeclaredByAdministrator EvidenceType = "DeclaredByAdministrator"
	// EvidenceAttachmentLost means that the VolumeAttachment had gone without Hawser.
	EvidenceAttachmentLost EvidenceType = "AttachmentLost"
)

// DetachEvidence records why a volume was detached.
type DetachEvidence struct {
	// type of the evidence.
	Type EvidenceType `json:"type"`
	// time of the decision.
	Time metav1.Time `json:"time"`
	// bootID of the node at that time, where known.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// unprotected is true when the driver is not known to cut the node's access when it unpublishes: a
	// mount that is left behind may still write to the volume.
	// +optional
	Unprotected bool `json:"unprotected,omitempty"`
	// mountTableOnly is true when the agent's report rests on the mount table alone, because the volume has no block device
	// that the kernel could be asked about.
	// +optional
	MountTableOnly bool `json:"mountTableOnly,omitempty"`
	// message names what was seen.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeAttachment is one volume that is attached to the node: everything the node needs to mount it.
type NodeAttachment struct {
	// volumeName is the unique name that the kubelet would use: kubernetes.io/csi/<driver>^<handle>.
	// +kubebuilder:validation:MinLength=1
	VolumeName string `json:"volumeName"`

	// attachmentUID is the UID of the VolumeAttachment; every flag speaks of this one attachment.
	// For a driver without attach it is an identifier that the controller made up.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`

	// attachmentName is the VolumeAttachment's name. Empty for a driver without attach.
	// +optional
	AttachmentName string `json:"attachmentName,omitempty"`

	// state is Attached or Detaching. Detaching is final for its attachmentUID.
	State AttachmentState `json:"state"`

	// evidence for the detach. Set with Detaching.
	// +optional
	Evidence *DetachEvidence `json:"evidence,omitempty"`

	// detachedTime is when the attachment was seen to be gone. An entry stays beyond that only while
	// the node's agent has not confirmed that nothing of a forced detach is left.
	// +optional
	DetachedTime *metav1.Time `json:"detachedTime,omitempty"`

	// detachError is why the driver's attacher has not detached the volume yet. It goes on trying. Only with Detaching.
	// +optional
	DetachError string `json:"detachError,omitempty"`

	// unlistedGeneration is the generation of this object from which on the Node's volumesAttached does not list the
	// volume any more. Once the agent has looked at its node at that generation (status.observedGeneration) and
	// has not found the volume, the attachment is deleted. Only in attach mode Replace.
	// +optional
	UnlistedGeneration int64 `json:"unlistedGeneration,omitempty"`

	// unlistedBootID is the boot that the Node named when the volume was taken out of its volumesAttached after a forced
	// detach. Only in attach mode Replace.
	// +optional
	UnlistedBootID string `json:"unlistedBootID,omitempty"`

	// rebootGeneration is the generation of this object from which on the attachment was gone and the agent of a node
	// that has booted since unlistedBootID was asked to look once more. If it finds nothing mounted, the attachment's name
	// is freed although the kubelet lists the volume in use for a pod that waits. Only in attach mode Replace.
	// +optional
	RebootGeneration int64 `json:"rebootGeneration,omitempty"`

	// driver is the CSI driver's name.
	// +optional
	Driver string `json:"driver,omitempty"`
	// volumeHandle is the driver's name of the volume.
	// +optional
	VolumeHandle string `json:"volumeHandle,omitempty"`
	// persistentVolumeName names the PersistentVolume.
	// +optional
	PersistentVolumeName string `json:"persistentVolumeName,omitempty"`
	// volumeMode is Filesystem or Block.
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// accessModes of the PersistentVolume.
	// +listType=atomic
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// fsType of the PersistentVolume.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// mountOptions of the PersistentVolume.
	// +listType=atomic
	// +optional
	MountOptions []string `json:"mountOptions,omitempty"`
	// volumeAttributes of the PersistentVolume.
	// +optional
	VolumeAttributes map[string]string `json:"volumeAttributes,omitempty"`
	// capacity of the PersistentVolume. A larger one than the node knows makes the node expand.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// expandFrom is the capacity that the claim's status records, while that is less than capacity: the volume has grown and no
	// node has expanded it yet. Absent when nothing is due.
	// +optional
	ExpandFrom *resource.Quantity `json:"expandFrom,omitempty"`
	// publishContext is what the driver's ControllerPublishVolume answered.
	// +optional
	PublishContext map[string]string `json:"publishContext,omitempty"`
	// fsGroupPolicy of the CSIDriver: ReadWriteOnceWithFSType, File or None.
	// +optional
	FSGroupPolicy storagev1.FSGroupPolicy `json:"fsGroupPolicy,omitempty"`
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

// NodeVolumeStateSpec is the cluster controller's word: what is attached to the node.
type NodeVolumeStateSpec struct {
	// attachments of the node, one for each volume. Written only by the cluster controller, and as a whole: what the API server
	// spends on tracking each field of each entry would be most of the cost of a write.
	// +listType=atomic
	// +optional
	Attachments []NodeAttachment `json:"attachments,omitempty"`

	// fences counts the locks of exclusive volumes that were moved away from this node, and the volumes that
	// were taken out of the Node's volumesAttached. Incrementing it voids every decision that was made on an
	// earlier version of this object, and makes the agent look at its node again.
	// +optional
	Fences int64 `json:"fences,omitempty"`

	// confirmedSession is the agent's session (status.session) that the manager has confirmed, having heard every agent. The agent takes no
	// volume into use before its session is confirmed.
	// +optional
	ConfirmedSession int64 `json:"confirmedSession,omitempty"`

	// unready is for how long the Node was watched not being Ready, while the forced detach of a volume waits for that.
	// +optional
	Unready *UnreadyObservation `json:"unready,omitempty"`

	// gone is for how long the Node was watched not being there, while it is waited for to forget what was forced away from it.
	// Only where the manager runs with --forget-gone-nodes-after.
	// +optional
	Gone *GoneObservation `json:"gone,omitempty"`
}

// IntentReference names one intent.
type IntentReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// PublicationType says what stands at a published path.
// +kubebuilder:validation:Enum=Mount;Device
type PublicationType string

const (
	// PublicationMount is a directory.
	PublicationMount PublicationType = "Mount"
	// PublicationDevice is a device node.
	PublicationDevice PublicationType = "Device"
)

// Publication is one place on the node where a volume can be used.
type Publication struct {
	// intent for which it was published.
	Intent IntentReference `json:"intent"`
	// path on the node.
	Path string `json:"path"`
	// type is Mount or Device.
	Type PublicationType `json:"type"`
	// readOnly publication.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// orphan is true when the intent is simply not there: the publication stays and counts as in use.
	// +optional
	Orphan bool `json:"orphan,omitempty"`
}

// NodeVolume is what the agent knows of one volume on its node.
type NodeVolume struct {
	// volumeName is the unique name, as in spec.attachments.
	// +kubebuilder:validation:MinLength=1
	VolumeName string `json:"volumeName"`
	// attachmentUID is the attachment that the flags speak of.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// inUse is true from before the first driver call until the last is known to be undone.
	InUse bool `json:"inUse"`
	// waiting: it is in use, but the kubelet has nothing of the volume mounted. It goes on with its records of an earlier boot, and counts as using
	// the next attachment.
	// +optional
	Waiting bool `json:"waiting,omitempty"`
	// stagedPath is where the volume is staged. Empty while it is not.
	// +optional
	StagedPath string `json:"stagedPath,omitempty"`
	// devicePath is the device behind the volume where known.
	// +optional
	DevicePath string `json:"devicePath,omitempty"`
	// capacity that the node has seen through the last stage or expansion.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// used bytes of the filesystem.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// available bytes of the filesystem.
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// inodes of the filesystem.
	// +optional
	Inodes *int64 `json:"inodes,omitempty"`
	// inodesUsed of the filesystem.
	// +optional
	InodesUsed *int64 `json:"inodesUsed,omitempty"`
	// mountTableOnly is true for a volume without a block device of its own: once it is unmounted, only the mount table shows
	// that it is not in use. Where there is such a device, the kernel is asked whether anything still holds it.
	// +optional
	MountTableOnly bool `json:"mountTableOnly,omitempty"`
	// publishedBy says who mounted it.
	// +optional
	PublishedBy Publisher `json:"publishedBy,omitempty"`
	// publications of the volume on this node, each at a path of its own.
	// +listType=atomic
	// +optional
	Publications []Publication `json:"publications,omitempty"`
	// unprotected is true when a mount of an attachment that was forced away is still there and could not be shut down.
	// +optional
	Unprotected bool `json:"unprotected,omitempty"`
	// error that the volume waits with.
	// +optional
	Error *OperationError `json:"error,omitempty"`
}

// MountTableRelease is a volume whose release rests on the mount table alone.
type MountTableRelease struct {
	// volumeName is the unique name, as in spec.attachments.
	VolumeName string `json:"volumeName"`
	// attachmentUID is the attachment that was released.
	AttachmentUID types.UID `json:"attachmentUID"`
}

// NodeDriver is one CSI driver that is registered on the node.
type NodeDriver struct {
	// name of the driver.
	Name string `json:"name"`
	// nodeID is the driver's name of the node.
	// +optional
	NodeID string `json:"nodeID,omitempty"`
	// capabilities of the node plugin, by their names in the CSI specification.
	// +listType=atomic
	// +optional
	Capabilities []string `json:"capabilities,omitempty"`
	// maxVolumes that the driver can attach to the node. Absent: no limit known.
	// +optional
	MaxVolumes *int64 `json:"maxVolumes,omitempty"`
}

// NodeVolumeSummary counts a node's volumes.
type NodeVolumeSummary struct {
	Attached  int32 `json:"attached"`
	Staged    int32 `json:"staged"`
	Published int32 `json:"published"`
	Failing   int32 `json:"failing"`
	Orphaned  int32 `json:"orphaned"`
}

// NodeVolumeStateStatus is the agent's word: what is on the node.
type NodeVolumeStateStatus struct {
	// observedGeneration is the generation that the agent last looked at.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// observedUID is the UID of the object under which the agent has reported. While it differs from
	// metadata.uid, everything counts as in use.
	// +optional
	ObservedUID types.UID `json:"observedUID,omitempty"`
	// reports counts the agent's writes. Each write increments it, so that none is empty and each
	// voids one that is still on its way, also from an earlier process.
	// +optional
	Reports int64 `json:"reports,omitempty"`
	// session is the number of the first report of the agent's session. A session ends with the agent's process, and
	// whenever the API server was out of reach, because the API may have been restored from a backup meanwhile.
	// +optional
	Session int64 `json:"session,omitempty"`
	// bootID of the node's kernel.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// agentVersion that wrote this.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// drivers that are registered on the node.
	// +listType=map
	// +listMapKey=name
	// +optional
	Drivers []NodeDriver `json:"drivers,omitempty"`
	// volumes on the node, one line for each. Written as a whole.
	// +listType=atomic
	// +optional
	Volumes []NodeVolume `json:"volumes,omitempty"`
	// mountTableReleases are the attachments of spec.attachments that are not in use any more, as far as the mount table shows: the
	// volume has no block device that the kernel could be asked about.
	// +listType=atomic
	// +optional
	MountTableReleases []MountTableRelease `json:"mountTableReleases,omitempty"`
	// summary counts them.
	// +optional
	Summary *NodeVolumeSummary `json:"summary,omitempty"`
	// conditions are Ready, DriversReady, VolumesHealthy, MountsConsistent and VolumesReleased. Every writer sends the whole
	// object at the version that it read.
	// +listType=atomic
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeVolumeState says what is attached to, staged and published on the node of its name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nvs,categories=hawser
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.summary.attached`
// +kubebuilder:printcolumn:name="Staged",type=integer,JSONPath=`.status.summary.staged`
// +kubebuilder:printcolumn:name="Published",type=integer,JSONPath=`.status.summary.published`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.summary.failing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeVolumeState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the cluster controller attached.
	// +optional
	Spec NodeVolumeStateSpec `json:"spec,omitempty"`

	// status is what the node's agent found and did.
	// +optional
	Status NodeVolumeStateStatus `json:"status,omitempty"`
}

// NodeVolumeStateList is a list of node states.
// +kubebuilder:object:root=true
type NodeVolumeStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeVolumeState `json:"items"`
}
