/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// Names that Hawser puts on objects. They are part of the API: tools may rely on them.
const (
	// ReleaseFinalizer holds a VolumeAttachmentIntent until its node has let go of the volume, if an agent stages or
	// publishes the volume for it or it has a detachPolicy, and a NodeVolumeState until it lists no attachment any more.
	ReleaseFinalizer = "volumes.hawser.io/release"

	// ClaimFinalizer is on every PersistentVolumeClaim that an intent with publisher Agent has ever used for more than attaching: a claim
	// that is deleted waits until no such intent uses it any more. Kubernetes' own pvc-protection counts pods only.
	ClaimFinalizer = "volumes.hawser.io/claim-protection"

	// ForcedAwayFinalizer keeps the name of a VolumeAttachment that was forced away taken, until the
	// node's agent has reported that nothing of the old mount is left.
	ForcedAwayFinalizer = "volumes.hawser.io/forced-away"

	// DeclaredReleasedPrefix and the UID of a VolumeAttachment make an annotation on a NodeVolumeState by which an administrator
	// declares that the node has let go of that attachment; the value says why. An admission policy asks for the verb
	// declare on nodevolumestates. It is taken off once nothing on the node speaks of that UID.
	DeclaredReleasedPrefix = "declared-released.volumes.hawser.io/"

	// ForgetGoneReason begins the value of a declaration that the manager makes in the name of the administrator who set that flag. An
	// admission policy lets it make no other.
	ForgetGoneReason = "--forget-gone-nodes-after="

	// HoldAnnotation on a VolumeAttachment says that an intent counts on it; the value is the
	// time at which the hold was set, in RFC 3339. An admission policy refuses to delete what is held.
	HoldAnnotation = "volumes.hawser.io/hold"

	// PodUIDLabel on a VolumeAttachmentIntent marks a pod intent: one that Hawser made for a volume of
	// the pod with this UID, which is the intent's controller.
	PodUIDLabel = "volumes.hawser.io/pod-uid"

	// InstallNamespace is where Hawser keeps a Lease for each agent's liveness, and the locks of exclusive volumes.
	InstallNamespace = "hawser-system"

	// AgentLeasePrefix and the node's name make the name of the Lease that the node's agent renews.
	AgentLeasePrefix = "hawser-agent-"

	// LeaseStateAnnotation on that Lease is the UID of the NodeVolumeState that the agent reports to, and LeaseReportsAnnotation the
	// number of its last report. An older state is not what the agent reported.
	LeaseStateAnnotation   = "volumes.hawser.io/node-volume-state"
	LeaseReportsAnnotation = "volumes.hawser.io/reports"
	// LeaseRestoredAnnotation: the API server has forgotten reports of the agent, and no manager has confirmed the agent's session since.
	LeaseRestoredAnnotation = "volumes.hawser.io/restored"

	// ExclusiveLocksPrefix and a part of the hash of a volume's unique name make the name of the ConfigMap that has its lock.
	ExclusiveLocksPrefix = "hawser-exclusive-locks-"

	// ExclusiveLocksLabel marks the ConfigMaps that have the locks of exclusive volumes.
	ExclusiveLocksLabel = "volumes.hawser.io/exclusive-locks"

	// CutsAccessAnnotation on a CSIDriver, with the value "true", is its operator's word that the driver's
	// ControllerUnpublishVolume cuts the node's access to the volume at once, whatever the node still does.
	// Without it a detach that was not released by the agent is recorded as unprotected.
	CutsAccessAnnotation = "volumes.hawser.io/unpublish-cuts-access"

	// VolumeNameAnnotation on a VolumeAttachment that is held is the unique name of its volume.
	VolumeNameAnnotation = "volumes.hawser.io/volume-name"
)

// Condition types of a VolumeAttachmentIntent. All are positive, True is good, except Stalled.
const (
	// ConditionResolved is True once the claim is bound to a volume that fits the intent and
	// both are pinned in status. Absent before the first look; False names what is missing.
	ConditionResolved = "Resolved"

	// ConditionAttached is True once the volume is attached to the node, or needs no attaching.
	// Absent until the intent is resolved; False says what the attachment waits for.
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

	// ConditionReady is True once everything that desiredState needs is True for the
	// present generation. Unknown when the node's agent has not been heard of (AgentUnreachable).
	ConditionReady = "Ready"

	// ConditionStalled is True only on errors that no retry can mend: somebody has to change
	// the intent or what it points to. Absent otherwise.
	ConditionStalled = "Stalled"
)

// Condition types of a NodeVolumeState. All are positive, True is good.
const (
	// ConditionDriversReady is True while every driver that an attachment of this node needs is
	// registered on the node.
	ConditionDriversReady = "DriversReady"

	// ConditionVolumesHealthy is True while no volume of the node carries an error or an
	// abnormal volume condition.
	ConditionVolumesHealthy = "VolumesHealthy"

	// ConditionMountsConsistent is True while the mount table shows exactly what the agent's
	// records say: nothing missing, no orphan.
	ConditionMountsConsistent = "MountsConsistent"

	// ConditionVolumesReleased is True once no volume is attached to the node or in use there, so that the node may be removed.
	ConditionVolumesReleased = "VolumesReleased"
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
	ReasonDetaching          = "Detaching"
	ReasonDetachFailed       = "DetachFailed"
	ReasonDetached           = "Detached"
	ReasonVolumeInUse        = "VolumeInUseElsewhere"
	ReasonReadWriteOncePod   = "ReadWriteOncePodConflict"
	ReasonNodeLimitReached   = "NodeLimitReached"
	ReasonDriverNotInstalled = "DriverNotOnNode"
	ReasonForcedAway         = "ForcedAwayNotReported"
	ReasonWaitingForAgent    = "WaitingForAgentReport"
	ReasonNodeStateTooLarge  = "NodeStateTooLarge"
	ReasonAttachmentLost     = "AttachmentLost"
)

// Reasons of the Staged, Published and Expanded conditions.
const (
	ReasonStaged              = "Staged"
	ReasonStaging             = "Staging"
	ReasonStageFailed         = "StageFailed"
	ReasonUnstaging           = "Unstaging"
	ReasonUnstageFailed       = "UnstageFailed"
	ReasonPublished           = "Published"
	ReasonPublishing          = "Publishing"
	ReasonPublishFailed       = "PublishFailed"
	ReasonUnpublishing        = "Unpublishing"
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
	ReasonFSGroupConflict     = "FSGroupConflict"
	ReasonSharedByKubelet     = "UsedByKubelet"
	ReasonDeviceHeld          = "DeviceHeld"
	ReasonReadOnlyNotEnforced = "ReadOnlyNotEnforced"
	ReasonDeviceReadOnly      = "DeviceReadOnly"
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
)
