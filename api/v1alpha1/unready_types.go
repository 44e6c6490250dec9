/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UnreadyObservation says for how long controllers have watched the Node not being Ready. It outlives each of them, so
// that a forced detach is not put off by a restart. Written only while one is waited for.
type UnreadyObservation struct {
	// transition is the lastTransitionTime of the Node's Ready condition when that was watched. With any other the
	// Node may have been Ready meanwhile, and this says nothing.
	Transition metav1.Time `json:"transition"`
	// observed is the sum of the times between looks that succeeded, each on the monotonic clock of a controller.
	Observed metav1.Duration `json:"observed"`
}

// GoneObservation is for how long a Node was watched not being there, its agent silent, on the monotonic clocks of the managers
// that watched. A Node that registers again, and an agent that is heard again, void it.
type GoneObservation struct {
	// lastWord identifies the last renewal of the agent's Lease. It is only compared with another one.
	// +optional
	LastWord string `json:"lastWord,omitempty"`
	// observed time of absence.
	Observed metav1.Duration `json:"observed"`
}
