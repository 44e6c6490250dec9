/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// Names that Hawser puts on the intents and claims of a VolumeAttachmentIntentSet.
const (
	// IntentSetLabel on an intent, or on a claim, is the name of the set that it was made for.
	IntentSetLabel = "volumes.hawser.io/intent-set"
	// IntentSetUIDLabel on an intent is the UID of that set. An intent without a controller belongs to the set only if
	// it has this label: its name alone is not enough.
	IntentSetUIDLabel = "volumes.hawser.io/intent-set-uid"
	// RevisionLabel on an intent is the hash of the template that it was made from.
	RevisionLabel = "volumes.hawser.io/revision"
	// IntentSetNodeAnnotation on a claim is the node that it was made for.
	IntentSetNodeAnnotation = "volumes.hawser.io/intent-set-node"

	// ReadyLabelPrefix begins the key of the label of a Node where the intent of a set is Ready. The set's namespace, a
	// dot and its name follow. The value is true.
	ReadyLabelPrefix = "ready.volumes.hawser.io/"

	// AllowedNodesAnnotation on a namespace restricts the nodes of its intents: names, or beginnings of names with a *.
	AllowedNodesAnnotation = "volumes.hawser.io/allowed-nodes"
)

// A set has the conditions Ready and Stalled. Ready is True once every node that is to have an intent has one that is
// Ready and has the present template. Stalled is True only on errors that no retry can fix.

// ConditionNodesLabelled is False while the Nodes where a set is Ready have not its label. Ready does not depend on it.
// Absent where spec.nodeLabels of the VolumeManager is not set.
const ConditionNodesLabelled = "NodesLabelled"

// Reasons of the conditions of a set, beside Ready, Progressing and RollingOut.
const (
	// ReasonNameTaken: an object that is not the set's has the name of one of its intents or claims.
	ReasonNameTaken = "NameTaken"
	// ReasonIntentRefused: the API server refuses an intent or a claim, for a quota or an admission policy.
	ReasonIntentRefused = "IntentRefused"
	// ReasonIntentsFailing: intents of the set are Stalled.
	ReasonIntentsFailing = "IntentsFailing"
	// ReasonSelectorInvalid: nodeSelector cannot be read, or selects by labels of sets. The intents stay as they are.
	ReasonSelectorInvalid = "SelectorInvalid"
	// ReasonLabelTooLong: namespace and name of the set are too long for a label. No Node is labelled.
	ReasonLabelTooLong = "LabelTooLong"
	// ReasonNodesForbidden: the manager may not patch Nodes.
	ReasonNodesForbidden = "NodesForbidden"
	// ReasonLabelRefused: the API server refuses the labels of a Node, for an admission policy.
	ReasonLabelRefused = "LabelRefused"
	// ReasonTooManyLabels: a Node has the labels of as many other sets of the namespace as it may have.
	ReasonTooManyLabels = "TooManyLabels"
)
