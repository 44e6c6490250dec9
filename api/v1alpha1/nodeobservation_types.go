/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeObservation is what managers observed of the Node itself, at the version of this object that they write it to.
// Only the manager writes it: an agent that could would have its own node's volumes forced away.
type NodeObservation struct {
	// unready is how long the Node was observed as not Ready. Set only while a forced detach waits for it.
	// +optional
	Unready *UnreadyObservation `json:"unready,omitempty"`
	// outOfService records the taint node.kubernetes.io/out-of-service that the Node carries. An agent that is heard
	// contradicts it. Absent once the manager has seen the Node without that taint.
	// +optional
	OutOfService *OutOfServiceObservation `json:"outOfService,omitempty"`
	// fences are those that hold for the Node. An agent that is heard contradicts them. One that is lifted is removed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Fences []FenceObservation `json:"fences,omitempty"`
	// absence records that a manager saw the Node go while its machine was out of reach. An agent that is heard
	// contradicts it. It is not set where only the Node was deleted: Kubernetes then ends the agent, so its silence shows
	// nothing. Absent once a manager has seen the Node again.
	// +optional
	Absence *AbsenceObservation `json:"absence,omitempty"`
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
	// lastRenewal identifies the last renewal of the agent's Lease during the observation. An agent that renews it again
	// voids the observation. It is only compared for equality.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastRenewal string `json:"lastRenewal,omitempty"`
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

// AbsenceObservation is the deletion of a Node as a manager saw it: the Node's Ready condition was Unknown, and the
// agent's Lease had expired. It asserts that the machine is gone. It replaces the agent's report only if the agent is
// silent, and was never heard since.
type AbsenceObservation struct {
	// observed is when that was recorded.
	// +required
	Observed metav1.Time `json:"observed"`
	// nodeUID is the UID of the Node that went. The departure of another Node of that name replaces the record.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +required
	NodeUID types.UID `json:"nodeUID"`
	// lastRenewal identifies the last renewal of the agent's Lease when the Node went. It is only compared for equality:
	// any other renewal contradicts the absence.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastRenewal string `json:"lastRenewal,omitempty"`
	// lastSession is status.protocol.session when the Node went: any other one contradicts it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastSession int64 `json:"lastSession,omitempty"`
	// contradicted is when a manager saw that the agent had been heard since. From then on the absence is no evidence.
	// +optional
	Contradicted *metav1.Time `json:"contradicted,omitempty"`
}

// OutOfServiceObservation is the out-of-service taint as managers first saw it. The taint asserts that the machine is
// off. It replaces the agent's report only if the agent is silent, and was never heard since the taint was seen.
type OutOfServiceObservation struct {
	// value of the taint. A taint with another value, effect or timeAdded is another one.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Value string `json:"value,omitempty"`
	// effect of the taint.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Effect corev1.TaintEffect `json:"effect,omitempty"`
	// timeAdded of the taint, where it has one.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
	// lastRenewal identifies the last renewal of the agent's Lease when a manager first saw the taint. It is only
	// compared for equality: any other renewal contradicts the taint.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastRenewal string `json:"lastRenewal,omitempty"`
	// lastSession is status.protocol.session when a manager first saw the taint: any other one contradicts the taint.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastSession int64 `json:"lastSession,omitempty"`
	// contradicted is when a manager saw that the agent had been heard since. From then on the taint is no
	// evidence until it is removed and set again.
	// +optional
	Contradicted *metav1.Time `json:"contradicted,omitempty"`
}
