/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// Longest values that the schemas take. A maximum cannot be lowered once there is a release, so each is at least what
// its source allows. Strings that Hawser composes are cut, and volumes whose values do not fit are refused.
const (
	// MaxDriverNameLength is that of a CSI driver, as Kubernetes restricts it.
	MaxDriverNameLength = 63
	// MaxVolumeHandleLength is sixteen times what the CSI specification allows (128 bytes), because drivers exceed it:
	// some put a URL or a resource's path into the handle. PersistentVolumes have no limit.
	MaxVolumeHandleLength = 2048
	// MaxVolumeNameLength is that of kubernetes.io/csi/<driver>^<handle>.
	MaxVolumeNameLength = len("kubernetes.io/csi/") + MaxDriverNameLength + len("^") + MaxVolumeHandleLength
	// MaxUIDLength is above that of the API server's UIDs, which have 36 characters.
	MaxUIDLength = 64
	// MaxPathLength is that of the kernel (PATH_MAX).
	MaxPathLength = 4096
	// MaxVolumes of one node: more than fit into the size of the whole object.
	MaxVolumes = 8192
	// MaxPublications of one volume: more than fit into the size of the whole object.
	MaxPublications = 8192
	// MaxUses of one volume on one node: the intents that the agent carries out or undoes there. Each costs the agent a
	// mount, a path and a line in the volume's record. Further intents wait with the reason TooManyUses.
	MaxUses = 256
	// MaxNamespaceUses of one namespace on one node, of all its volumes. The kernel has 100,000 mounts for all.
	MaxNamespaceUses = 2048
	// MaxNamespacePlaces in the directories of intents that the pods of one namespace have on one node.
	MaxNamespacePlaces = 2048
	// ShownPublications of one volume in a node state. The others are counted.
	ShownPublications = 16
	// MaxDrivers of one node.
	MaxDrivers = 1024
	// MaxConditions is four times the number of types that one kind has.
	MaxConditions = 32
	// MaxFSTypeLength is that of a file's name. The kernel's names of filesystems are shorter than 32.
	MaxFSTypeLength = 255
	// MaxMountOptions is far above what drivers and filesystems know.
	MaxMountOptions = 256
	// MaxMountOptionLength: the kernel takes one page of options in all.
	MaxMountOptionLength = 4096
	// MaxAccessModes is far above the number of modes that exist, because a PersistentVolume may repeat one.
	MaxAccessModes = 64
	// MaxNodeIDLength is what the CSI specification allows for a driver's name of the node.
	MaxNodeIDLength = 256
	// MaxCapabilities is ten times the number that the CSI specification defines for nodes.
	MaxCapabilities = 128
	// MaxBootIDLength is far above that of a Linux kernel's boot ID, which is a UUID.
	MaxBootIDLength = 128
	// MaxVersionLength is that of an agent's version.
	MaxVersionLength = 256
	// MaxCodeLength is that of an error's code.
	MaxCodeLength = 128
	// MaxMessageLength is that of an error and of the evidence for a detach. Many of them share one object.
	MaxMessageLength = 4096
	// MaxHealthProblems, MaxHealthReasonLength and MaxHealthMessageLength are those of Kubernetes for what a driver
	// reports of one volume.
	MaxHealthProblems      = 16
	MaxHealthReasonLength  = 256
	MaxHealthMessageLength = 1024
	// MaxConditionMessageLength is that of a condition, as Kubernetes restricts it.
	MaxConditionMessageLength = 32768
)
