/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// Names that Hawser puts on objects. They are part of the API: tools may rely on them.
const (
	// ReleaseFinalizer on a VolumeAttachmentIntent is removed once its node has released the volume. It is set if an
	// agent stages or publishes the volume, or if the intent has a detachPolicy. On a NodeVolumeState it is removed
	// once no attachment is listed any more.
	ReleaseFinalizer = "volumes.hawser.io/release"

	// ClaimFinalizer is on every PersistentVolumeClaim that an intent with publisher Agent has used for more than
	// attaching. A deleted claim waits until no such intent uses it. Kubernetes' own pvc-protection counts pods only.
	ClaimFinalizer = "volumes.hawser.io/claim-protection"

	// InUseAnnotation on a PersistentVolumeClaim means that intents use it. It is set in one write with the
	// ClaimFinalizer. Once no intent uses the claim, it is removed only where deletions are refused; elsewhere it stays
	// and means nothing, as the finalizer does.
	InUseAnnotation = "volumes.hawser.io/in-use-by-intents"

	// RefuseDeletionLabel with the value true, on a PersistentVolumeClaim or on its namespace, has an admission policy
	// refuse to delete claims with the InUseAnnotation. Deletions of the namespace and by garbage collection pass.
	RefuseDeletionLabel = "volumes.hawser.io/refuse-claim-deletion"

	// ForcedAwayFinalizer reserves the name of a VolumeAttachment after a forced detach. It is removed once the
	// node's agent has reported that no mount of the attachment is left.
	ForcedAwayFinalizer = "volumes.hawser.io/forced-away"

	// DeclaredReleasedPrefix and the UID of a VolumeAttachment form an annotation on a NodeVolumeState. With it an
	// administrator declares that the node has released that attachment. The value is the reason. An admission
	// policy requires the verb declare on nodevolumestates. The manager removes the annotation once nothing on the
	// node refers to that UID.
	DeclaredReleasedPrefix = "declared-released.volumes.hawser.io/"

	// ForgetGoneReason begins the value of a declaration that the manager makes because of that flag.
	// An admission policy denies the manager all other declarations.
	ForgetGoneReason = "--forget-gone-nodes-after="

	// HoldAnnotation on a VolumeAttachment means that an intent uses it. The value is the time at which the hold was
	// set, in RFC 3339. An admission policy refuses to delete an attachment with a hold.
	HoldAnnotation = "volumes.hawser.io/hold"

	// PodUIDLabel on a VolumeAttachmentIntent marks a pod intent. Hawser created it for a volume of the pod with this
	// UID. The pod is the intent's controller.
	PodUIDLabel = "volumes.hawser.io/pod-uid"

	// InstallNamespace is where Hawser is installed by default. A program asks internal/install for its own.
	InstallNamespace = "hawser-system"

	// AgentLeasePrefix and the node's name form the name of the Lease that the node's agent renews.
	AgentLeasePrefix = "hawser-agent-"

	// LeaseStateAnnotation on that Lease is the UID of the NodeVolumeState that the agent reports to.
	// LeaseReportsAnnotation is the number of the agent's last report. A node state with a lower number is stale.
	LeaseStateAnnotation   = "volumes.hawser.io/node-volume-state"
	LeaseReportsAnnotation = "volumes.hawser.io/reports"
	// LeaseRestoredAnnotation means that the API server has lost reports of the agent.
	// No manager has confirmed the agent's session since.
	LeaseRestoredAnnotation = "volumes.hawser.io/restored"
	// LeaseRestoreIDAnnotation is the ID that the agent gave to that restore. No backup contains it.
	LeaseRestoreIDAnnotation = "volumes.hawser.io/restore-id"

	// ExcusedFromRestoreAnnotation on a NodeVolumeState excuses its node from a restore. With it an administrator asserts
	// that the node uses no volume. Its value is the ID of the restore, as the event WaitingForAgents has it. It counts
	// while an agent reports that restore. An admission policy requires the verb declare on nodevolumestates.
	ExcusedFromRestoreAnnotation = "volumes.hawser.io/excused-from-restore"

	// ExclusiveLocksPrefix begins the name of a ConfigMap that contains locks of exclusive volumes.
	// The name ends with a part of the hash of the volumes' unique names.
	ExclusiveLocksPrefix = "hawser-exclusive-locks-"

	// ExclusiveLocksLabel marks the ConfigMaps that contain the locks of exclusive volumes.
	ExclusiveLocksLabel = "volumes.hawser.io/exclusive-locks"

	// CutsAccessAnnotation on a CSIDriver, with the value "true", is its operator's promise: the driver's
	// ControllerUnpublishVolume cuts the node's access to the volume at once, whatever the node still does.
	// Without it, a detach that the agent did not release is recorded as unprotected.
	CutsAccessAnnotation = "volumes.hawser.io/unpublish-cuts-access"

	// VolumeNameAnnotation on a VolumeAttachment with a hold is the unique name of its volume.
	VolumeNameAnnotation = "volumes.hawser.io/volume-name"

	// InUseLabel is on the VolumeManager, and on each object without which Hawser releases nothing: its kinds, the
	// operator's Deployment, account and roles, their namespace, and the ClusterExtension that installed them. The
	// value is how many volumes are wanted, attached or in use, or InUseUnknown. An admission policy refuses to delete
	// an object with this label.
	InUseLabel = "volumes.hawser.io/in-use"
	// InUseUnknown counts as in use.
	InUseUnknown = "unknown"

	// RemovalFinalizer on the VolumeManager is removed once everything that Hawser ever wrote is gone.
	RemovalFinalizer = "volumes.hawser.io/removal"
	// RemovedAnnotation on the operator's Deployment is when a VolumeManager was removed. The operator then makes none
	// at its next start.
	RemovedAnnotation = "volumes.hawser.io/removed"
)

// Condition types of a VolumeAttachmentIntent. All are positive, True is good, except Stalled.
const (
	// ConditionResolved is True once the claim is bound to a volume that fits the intent.
	// Both are then pinned in status. Absent before the first reconcile; the message of False names what is missing.
	ConditionResolved = "Resolved"

	// ConditionAttached is True once the volume is attached to the node, or needs no attaching.
	// Absent until the intent is resolved; the message of False names what the attachment waits for.
	ConditionAttached = "Attached"

	// ConditionStaged is True once the volume is mounted (or mapped) at the node's staging path.
	// Absent while desiredState is Attached and nothing is staged.
	ConditionStaged = "Staged"

	// ConditionPublished is True once the volume can be used at status.path.
	// Absent while desiredState is below Published and nothing is published.
	ConditionPublished = "Published"

	// ConditionExpanded is False while a larger capacity waits to reach the node, True once it has.
	// Absent when the volume never grew under this intent.
	ConditionExpanded = "Expanded"

	// ConditionReady is True once every condition that desiredState needs is True for the
	// present generation. Unknown when the node's agent stopped reporting (AgentUnreachable).
	ConditionReady = "Ready"

	// ConditionStalled is True only on errors that no retry can fix: a user has to change
	// the intent or an object that it refers to. Absent otherwise.
	ConditionStalled = "Stalled"
)

// Condition types of a NodeVolumeState. All are positive, True is good.
const (
	// ConditionDriversReady is True while every driver that an attachment of this node needs is
	// registered on the node.
	ConditionDriversReady = "DriversReady"

	// ConditionVolumesHealthy is True while no volume of the node has an error or an
	// abnormal volume condition.
	ConditionVolumesHealthy = "VolumesHealthy"

	// ConditionStorageHealthy is False while a driver reports a problem of what stores its volumes, as seen from the
	// node. Absent as long as no driver of the node reports on that.
	ConditionStorageHealthy = "StorageHealthy"

	// ConditionMountsConsistent is True while the mount table matches the agent's records: nothing is missing and
	// there is no orphan.
	ConditionMountsConsistent = "MountsConsistent"

	// ConditionVolumesReleased is True once no volume is attached to the node or in use there. The node may then be
	// removed.
	ConditionVolumesReleased = "VolumesReleased"

	// ConditionSameMachine is True while every use on the node is of the machine that reports. It is False while a volume
	// is in use by another machine under the same node name, and Unknown while it is not known what machine this is, or
	// what machine used volumes before its last boot.
	ConditionSameMachine = "SameMachine"

	// ConditionAttachmentsHealthy is False while the driver's attacher does not attach or detach a volume of the node, or
	// while the node goes on under another name. The manager writes it. Absent as long as nothing was ever wrong.
	ConditionAttachmentsHealthy = "AttachmentsHealthy"

	// ConditionTaintConsistent is False while the Node carries the taint node.kubernetes.io/out-of-service although the
	// node's agent reports. The manager writes it. Absent as long as nothing was ever wrong.
	ConditionTaintConsistent = "TaintConsistent"
	// ConditionFencesConsistent is False while a fence holds for the Node although the node's agent has reported since the
	// fence was recorded. It is absent as long as nothing was ever wrong.
	ConditionFencesConsistent = "FencesConsistent"

	// ConditionDetachPossible is about a node whose agent is unreachable while volumes are attached. It is True if there
	// is evidence on which they may be detached. The message of False names what is missing. Absent otherwise.
	ConditionDetachPossible = "DetachPossible"
)

// Reasons of the Resolved condition.
const (
	ReasonResolved               = "Resolved"
	ReasonClaimNotFound          = "ClaimNotFound"
	ReasonClaimNotBound          = "ClaimNotBound"
	ReasonWaitForFirstConsumer   = "WaitForFirstConsumer"
	ReasonClaimLost              = "ClaimLost"
	ReasonClaimDeleting          = "ClaimDeleting"
	ReasonClaimReplaced          = "ClaimReplaced"
	ReasonVolumeNotFound         = "VolumeNotFound"
	ReasonVolumeBoundElsewhere   = "VolumeBoundElsewhere"
	ReasonVolumeReplaced         = "VolumeReplaced"
	ReasonVolumeNotSupported     = "VolumeNotSupported"
	ReasonVolumeSourceInvalid    = "VolumeSourceInvalid"
	ReasonPodNotFound            = "PodNotFound"
	ReasonPodNotOnNode           = "PodNotOnNode"
	ReasonPodReplaced            = "PodReplaced"
	ReasonVolumeModeMismatch     = "VolumeModeMismatch"
	ReasonAccessModeMismatch     = "AccessModeMismatch"
	ReasonNodeNotFound           = "NodeNotFound"
	ReasonNodeAffinityMismatch   = "NodeAffinityMismatch"
	ReasonNodeDeleting           = "NodeDeleting"
	ReasonAdmissionPolicyMissing = "AdmissionPolicyMissing"
)

// Reasons of the Attached condition.
const (
	ReasonAttached           = "Attached"
	ReasonAttachNotRequired  = "AttachNotRequired"
	ReasonLocksUnreadable    = "LocksUnreadable"
	ReasonAttaching          = "Attaching"
	ReasonAttachFailed       = "AttachFailed"
	ReasonAttacherSilent     = "AttacherNotAnswering"
	ReasonDetaching          = "Detaching"
	ReasonDetachFailed       = "DetachFailed"
	ReasonDetached           = "Detached"
	ReasonVolumeInUse        = "VolumeInUseElsewhere"
	ReasonReadWriteOncePod   = "ReadWriteOncePodConflict"
	ReasonTooManyUses        = "TooManyUses"
	ReasonNodeLimitReached   = "NodeLimitReached"
	ReasonDriverNotInstalled = "DriverNotOnNode"
	ReasonForcedAway         = "ForcedAwayNotReported"
	ReasonWaitingForAgent    = "WaitingForAgentReport"
	ReasonNodeStateTooLarge  = "NodeStateTooLarge"
	ReasonAttachmentLost     = "AttachmentLost"
	ReasonNodeTainted        = "NodeTaintedOutOfService"
	ReasonNodeFenced         = "NodeFenced"
)

// Reasons of the Staged, Published and Expanded conditions.
const (
	ReasonStaged              = "Staged"
	ReasonStaging             = "Staging"
	ReasonStageFailed         = "StageFailed"
	ReasonUnstageFailed       = "UnstageFailed"
	ReasonPublished           = "Published"
	ReasonPublishing          = "Publishing"
	ReasonPublishFailed       = "PublishFailed"
	ReasonUnpublishFailed     = "UnpublishFailed"
	ReasonExpanded            = "Expanded"
	ReasonExpanding           = "Expanding"
	ReasonExpandFailed        = "ExpandFailed"
	ReasonExpandInfeasible    = "ExpandInfeasible"
	ReasonDriverNotFound      = "DriverNotRegistered"
	ReasonOutcomeUncertain    = "OutcomeUncertain"
	ReasonCallInFlight        = "EarlierCallStillRunning"
	ReasonUnknownFSType       = "UnknownFilesystem"
	ReasonFormatToolMissing   = "FormatToolMissing"
	ReasonFilesystemMismatch  = "FilesystemMismatch"
	ReasonPathOccupied        = "PathOccupied"
	ReasonSubPathInvalid      = "SubPathInvalid"
	ReasonSecretNotReadable   = "SecretNotReadable"
	ReasonRecordFailed        = "RecordNotWritable"
	ReasonSessionUnconfirmed  = "SessionNotConfirmed"
	ReasonMountLost           = "MountLost"
	ReasonMountOptions        = "MountOptionsNotSupported"
	ReasonMountNotAllowed     = "MountOptionsNotAllowed"
	ReasonSELinuxOptions      = "SELinuxOptionsNotSupported"
	ReasonSELinuxConflict     = "SELinuxConflict"
	ReasonFSGroupConflict     = "FSGroupConflict"
	ReasonSharedByKubelet     = "UsedByKubelet"
	ReasonUsedByPods          = "UsedByPods"
	ReasonDeviceHeld          = "DeviceHeld"
	ReasonReadOnlyNotEnforced = "ReadOnlyNotEnforced"
	ReasonDeviceReadOnly      = "DeviceReadOnly"
	ReasonVolumeSick          = "VolumeSick"
)

// Reasons of the Ready and Stalled conditions, of events, and of NodeVolumeState conditions.
const (
	ReasonReady            = "Ready"
	ReasonProgressing      = "Progressing"
	ReasonReleasing        = "Releasing"
	ReasonAgentUnreachable = "AgentUnreachable"
	ReasonAgentStopped     = "AgentStopped"
	ReasonDriversMissing   = "DriversMissing"
	ReasonVolumesFailing   = "VolumesFailing"
	ReasonMountsDiffer     = "MountsDiffer"
	ReasonAsExpected       = "AsExpected"
	ReasonReleased         = "Released"
	ReasonVolumesPresent   = "VolumesPresent"
	ReasonReleaseFailing   = "ReleaseFailing"
	ReasonAnotherMachine   = "AnotherMachine"
	ReasonMachineUnknown   = "MachineUnknown"
	ReasonStorageUnhealthy = "StorageUnhealthy"

	ReasonNodeRenamed       = "NodeRenamed"
	ReasonNodeIDChanged     = "NodeIDChanged"
	ReasonTaintContradicted = "OutOfServiceContradicted"
	ReasonFenceContradicted = "FenceContradicted"
	ReasonEvidenceMissing   = "EvidenceMissing"
	ReasonEvidenceGiven     = "EvidenceGiven"
)
