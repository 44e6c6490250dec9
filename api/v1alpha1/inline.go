/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// A pod uses the volume of an intent through an inline CSI volume:
//
//	volumes:
//	- name: data
//	  csi:
//	    driver: volumes.hawser.io
//	    volumeAttributes: {claim: data}
const (
	// InlineDriver is the CSI driver that the agent serves for inline volumes of pods.
	InlineDriver = "volumes.hawser.io"
	// AttributeIntent names an intent of the pod's namespace, for the pod's node.
	AttributeIntent = "intent"
	// AttributeClaim names a claim of the pod's namespace. Hawser creates the intent, owned by the pod.
	AttributeClaim = "claim"
	// PlacementGate is the scheduling gate of pods whose inline volumes restrict the nodes that they may run on. The
	// manager lifts it once the pod's node affinity has these restrictions.
	PlacementGate = "volumes.hawser.io/placement"
)
