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
