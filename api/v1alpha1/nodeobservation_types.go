/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeObservation is what managers observed of the Node itself, at the version of this object that they write it to.
// Only the manager writes it: an agent that could would have its own node's volumes forced away.
type NodeObservation struct {
	// unready is how long the Node was observed as not Ready. Set only while a forced detach waits for it.
	// +optional
	Unready *UnreadyObservation `json:"unready,omitempty"`
	// gone is how long the Node was observed as absent. When it was long enough, the manager forgets the volumes
	// that were forced away from it. Only where the manager runs with --forget-gone-nodes-after.
	// +optional
	Gone *GoneObservation `json:"gone,omitempty"`
}

// UnreadyObservation is how long controllers have observed the Node as not Ready. It outlives each controller, so
// that a restart does not delay a forced detach. Written only while a forced detach waits for it.
type UnreadyObservation struct {
	// transition is the lastTransitionTime of the Node's Ready condition during the observation. A different time
	// means that the Node may have been Ready in between, and voids the observation.
	// +required
	Transition metav1.Time `json:"transition"`
	// observed is the sum of the times between successful reads, each on the monotonic clock of a controller.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +required
	Observed metav1.Duration `json:"observed"`
}

// GoneObservation is how long managers observed that a Node was absent and its agent silent, on their monotonic
// clocks. A Node that registers again, or an agent that renews its Lease again, voids it.
type GoneObservation struct {
	// lastRenewal identifies the last renewal of the agent's Lease. It is only compared for equality.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastRenewal string `json:"lastRenewal,omitempty"`
	// observed is how long the Node was absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +required
	Observed metav1.Duration `json:"observed"`
}
