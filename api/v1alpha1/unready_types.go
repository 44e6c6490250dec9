/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UnreadyObservation is how long controllers have observed the Node as not Ready. It outlives each controller, so
// that a restart does not delay a forced detach. Written only while a forced detach waits for it.
type UnreadyObservation struct {
	// transition is the lastTransitionTime of the Node's Ready condition during the observation. A different time
	// means that the Node may have been Ready in between, and voids the observation.
	Transition metav1.Time `json:"transition"`
	// observed is the sum of the times between successful reads, each on the monotonic clock of a controller.
	Observed metav1.Duration `json:"observed"`
}

// GoneObservation is how long managers observed that a Node was absent and its agent silent, on their monotonic
// clocks. A Node that registers again, or an agent that renews its Lease again, voids it.
type GoneObservation struct {
	// lastWord identifies the last renewal of the agent's Lease. It is only compared for equality.
	// +optional
	LastWord string `json:"lastWord,omitempty"`
	// observed is how long the Node was absent.
	Observed metav1.Duration `json:"observed"`
}
