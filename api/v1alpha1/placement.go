/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// GatedLabel with the value "true" is on pods that have PlacementGate: gates cannot be selected. The manager removes it
// together with the gate.
const GatedLabel = "volumes.hawser.io/gated"

// ConditionPlaceable is a condition of a pod with PlacementGate. It is False while the nodes that the pod may run on
// are not known, or while there is none. It is True once the pod's node affinity has them. A pod that is placed at the
// first try has no such condition.
const ConditionPlaceable = "volumes.hawser.io/Placeable"

// Reasons of the condition Placeable that intents do not have. Those of a claim, its volume, the user of an exclusive
// volume and a full node are the reasons of the conditions Resolved and Attached of an intent.
const (
	ReasonPlaced                = "Placed"
	ReasonAlternativeChosen     = "AlternativeChosen"
	ReasonEveryNodeFull         = "EveryNodeFull"
	ReasonAttributesInvalid     = "AttributesInvalid"
	ReasonIntentNotFound        = "IntentNotFound"
	ReasonIntentDeleting        = "IntentDeleting"
	ReasonStorageClassNotFound  = "StorageClassNotFound"
	ReasonNoProvisioner         = "NoProvisioner"
	ReasonConstraintsContradict = "ConstraintsContradict"
	ReasonPlacementRefused      = "PlacementRefused"
)

// PlacementReasons are all reasons for which Placeable is False.
func PlacementReasons() []string {
	return []string{
		ReasonAttributesInvalid, ReasonIntentNotFound, ReasonIntentDeleting, ReasonNodeNotFound, ReasonClaimNotFound,
		ReasonClaimDeleting, ReasonClaimLost, ReasonClaimNotBound, ReasonStorageClassNotFound, ReasonNoProvisioner,
		ReasonWaitForFirstConsumer, ReasonVolumeNotFound, ReasonVolumeBoundElsewhere, ReasonVolumeNotSupported,
		ReasonVolumeModeMismatch, ReasonVolumeInUse, ReasonReadWriteOncePod, ReasonConstraintsContradict,
		ReasonPlacementRefused, ReasonNodeLimitReached,
	}
}
