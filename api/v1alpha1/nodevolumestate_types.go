/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeVolumeStateSpec is what the cluster controller has attached to the node.
type NodeVolumeStateSpec struct {
	// attachments of the node, one for each volume. Only the cluster controller writes the list, and always as a
	// whole: field tracking of each entry by the API server would cost more than the rest of a write.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8192
	// +optional
	Attachments []NodeAttachment `json:"attachments,omitempty"`

	// protocol is what the manager sets for the agent beside the entries. Internal and unstable: it may change
	// in any minor release, so nothing else may depend on it. Absent means that every field is zero.
	// +optional
	Protocol ManagerProtocol `json:"protocol,omitzero"`
}

// ManagerProtocol holds the manager's registers of one node.
type ManagerProtocol struct {
	// fences counts the locks that were moved away from this node, and the volumes that were removed from the Node's
	// volumesAttached. An increment voids every decision that was made on an earlier version of this object.
	// It also makes the agent reconcile its node again.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Fences int64 `json:"fences,omitempty"`

	// confirmedSession is the agent's session (status.protocol.session) that the manager has confirmed, after all
	// agents reported. The agent starts to use no volume before its session is confirmed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ConfirmedSession int64 `json:"confirmedSession,omitempty"`
}

// IntentReference names one intent.
type IntentReference struct {
	// namespace of the intent.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name of the intent.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// uid of the intent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +required
	UID types.UID `json:"uid"`
}

// PublicationType is the kind of file at a published path.
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
	// intent of the publication.
	// +required
	Intent IntentReference `json:"intent"`
	// path on the node.
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Path string `json:"path"`
	// type is Mount or Device.
	// +required
	Type PublicationType `json:"type,omitempty"`
	// readOnly publication.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// orphan is true when the intent does not exist. The publication stays and counts as in use.
	// +optional
	Orphan bool `json:"orphan,omitempty"`
}

// NodeVolume is what the agent reports about one volume on its node.
type NodeVolume struct {
	// volumeName is the unique name, as in spec.attachments.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2130
	// +required
	VolumeName string `json:"volumeName,omitempty"`
	// attachmentUID is the attachment that the flags are about. Where the kubelet of another machine used the volume and
	// nothing names the attachment, it is machine- and that machine's hash, and can be declared released.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// inUse is true from before the first driver call until the last call is known to be undone.
	// +required
	InUse bool `json:"inUse"`
	// waiting is true when the volume is in use, but the kubelet has not mounted it. The kubelet continues with its
	// records of an earlier boot, and counts as a user of the next attachment.
	// +optional
	Waiting bool `json:"waiting,omitempty"`
	// stagedPath is where the volume is staged. Empty while it is not.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	StagedPath string `json:"stagedPath,omitempty"`
	// devicePath is the block device of the volume, if known.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	DevicePath string `json:"devicePath,omitempty"`
	// capacity that the node saw in the last stage or expansion.
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
	// health that the driver reports, while it reports a problem of the volume.
	// +optional
	Health *Health `json:"health,omitempty"`
	// mountTableOnly is true for a volume without a block device. Only the mount table then shows that nothing uses
	// the volume any more. For other volumes the agent opens the device exclusively to find holders.
	// +optional
	MountTableOnly bool `json:"mountTableOnly,omitempty"`
	// publishedBy is the program that mounted the volume: the agent or the kubelet.
	// +optional
	PublishedBy Publisher `json:"publishedBy,omitempty"`
	// publications of the volume on this node, each at its own path. At most 16 are listed, those without an intent
	// first, and fewer where the node state would become too large.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8192
	// +optional
	Publications []Publication `json:"publications,omitempty"`
	// publicationCount is how many publications there are. Absent if all are listed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PublicationCount int32 `json:"publicationCount,omitempty"`
	// unprotected is true when a mount of a forced-away attachment is left and the agent could not shut it down.
	// +optional
	Unprotected bool `json:"unprotected,omitempty"`
	// error that the volume's next step waits for.
	// +optional
	Error *OperationError `json:"error,omitempty"`
	// machine that uses the volume, if it is another one than status.machine. The agent that reports carries the element
	// on as that machine left it. It stays until an administrator ended the use: by the out-of-service taint or a
	// declaration, for this attachmentUID.
	// +optional
	Machine *MachineIdentity `json:"machine,omitempty"`
}

// MountTableRelease is a volume whose release is based on the mount table alone.
type MountTableRelease struct {
	// volumeName is the unique name, as in spec.attachments.
	// +kubebuilder:validation:MaxLength=2130
	// +required
	VolumeName string `json:"volumeName"`
	// attachmentUID is the attachment that was released.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +required
	AttachmentUID types.UID `json:"attachmentUID"`
}

// NodeDriver is one CSI driver that is registered on the node.
type NodeDriver struct {
	// name of the driver.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`
	// nodeID is the driver's identifier of the node.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	NodeID string `json:"nodeID,omitempty"`
	// capabilities of the node plugin, by their names in the CSI specification.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=128
	// +optional
	Capabilities []string `json:"capabilities,omitempty"`
	// maxVolumes is how many volumes the driver can attach to the node. Absent if no limit is known.
	// +optional
	MaxVolumes *int64 `json:"maxVolumes,omitempty"`
	// storageHealth that the driver reports, while it reports a problem of what stores its volumes.
	// +optional
	StorageHealth *Health `json:"storageHealth,omitempty"`
}

// NodeVolumeSummary counts a node's volumes.
type NodeVolumeSummary struct {
	// attached counts the entries of spec.attachments.
	// +kubebuilder:validation:Minimum=0
	// +required
	Attached int32 `json:"attached"`
	// staged counts the volumes that are staged.
	// +kubebuilder:validation:Minimum=0
	// +required
	Staged int32 `json:"staged"`
	// published counts the volumes that are published.
	// +kubebuilder:validation:Minimum=0
	// +required
	Published int32 `json:"published"`
	// failing counts the volumes with an error or an abnormal condition.
	// +kubebuilder:validation:Minimum=0
	// +required
	Failing int32 `json:"failing"`
	// orphaned counts the volumes in use whose intent or attachment does not exist.
	// +kubebuilder:validation:Minimum=0
	// +required
	Orphaned int32 `json:"orphaned"`
	// directories counts the directories of intents that pods have. The agent reports at once that there are some, or
	// none any more, and a number between with whatever it reports next.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Directories int32 `json:"directories,omitempty"`
}

// AgentProtocol holds the agent's registers of one node.
type AgentProtocol struct {
	// observedUID is the UID of the object to which the agent last reported. While it differs from metadata.uid,
	// everything counts as in use.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ObservedUID types.UID `json:"observedUID,omitempty"`
	// reports counts the agent's writes. Each write increments it. No write is therefore empty, and each write voids
	// any that is still in flight, also from an earlier process.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Reports int64 `json:"reports,omitempty"`
	// session is the number of the first report of the agent's session. A session ends with the agent's process.
	// It also ends when the agent loses the API server, which may be restored from a backup meanwhile.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Session int64 `json:"session,omitempty"`
}

// NodeVolumeStateStatus is the agent's report of its node, beside what managers observed of the Node.
type NodeVolumeStateStatus struct {
	// observedGeneration is the generation that the agent last reconciled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// protocol is how the agent's reports relate to this object and to each other. Internal and unstable: it
	// may change in any minor release, so nothing else may depend on it. Absent means that every field is zero.
	// +optional
	Protocol AgentProtocol `json:"protocol,omitzero"`
	// node is what managers observed of the Node, from outside. Only the manager writes it; the agent sends it back as
	// it was read.
	// +optional
	Node NodeObservation `json:"node,omitzero"`
	// bootID of the node's kernel.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machine whose agent wrote this report. Every element of volumes without a machine of its own is of this one.
	// +optional
	Machine MachineIdentity `json:"machine,omitempty,omitzero"`
	// agentVersion is the version of the agent that wrote this report.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// drivers that are registered on the node.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	Drivers []NodeDriver `json:"drivers,omitempty"`
	// volumes on the node, one element for each. Written as a whole.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8192
	// +optional
	Volumes []NodeVolume `json:"volumes,omitempty"`
	// mountTableReleases are attachments of spec.attachments that are not in use any more, according to the mount
	// table alone. The volume has no block device that the agent could open exclusively.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8192
	// +optional
	MountTableReleases []MountTableRelease `json:"mountTableReleases,omitempty"`
	// summary counts the volumes.
	// +optional
	Summary *NodeVolumeSummary `json:"summary,omitempty"`
	// conditions are Ready, DriversReady, VolumesHealthy, StorageHealthy, MountsConsistent, VolumesReleased and
	// SameMachine. Every writer updates the whole object, at the version that it read.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeVolumeState is the state of one node's volumes: what is attached, staged and published there. Its name is
// the Node's name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nvs,categories=hawser
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.summary.attached`
// +kubebuilder:printcolumn:name="Staged",type=integer,JSONPath=`.status.summary.staged`
// +kubebuilder:printcolumn:name="Published",type=integer,JSONPath=`.status.summary.published`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.summary.failing`
// +kubebuilder:printcolumn:name="Orphaned",type=integer,JSONPath=`.status.summary.orphaned`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.agentVersion`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeVolumeState struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is that of every object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the cluster controller has attached.
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
