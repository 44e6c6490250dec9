/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of a VolumeManager.
const (
	// ConditionAvailable is True while a manager is ready and no more agents are absent than a rollout may replace at
	// once. The message has the counts.
	ConditionAvailable = "Available"

	// ConditionProgressing is True while a workload has not come to what the spec asks for. The message names the
	// workloads and counts what they wait for.
	ConditionProgressing = "Progressing"

	// ConditionDegraded is True while something does not come about by waiting: a rollout that does not end, a program
	// that crashes, a change that is held back. A rollout may be Progressing and Degraded at the same time.
	ConditionDegraded = "Degraded"

	// ConditionMonitored is False while the monitors are left out because their kinds are missing. Absent where
	// spec.monitoring is None.
	ConditionMonitored = "Monitored"

	// ConditionReplaceCoversNodes is False while there are nodes without an agent whose kubelets leave attaching to a
	// controller: in attach mode Replace no volume is attached for their pods. In Coexist it warns of that. Absent
	// until the agents are installed.
	ConditionReplaceCoversNodes = "ReplaceCoversNodes"

	// ConditionFenceSourcesReady is False while a source of spec.fencing cannot be used. The message names each one.
	// Absent where spec.fencing has no source.
	ConditionFenceSourcesReady = "FenceSourcesReady"

	// ConditionRemoved is False while the VolumeManager is being deleted, and absent before. The message counts and
	// names what is left. Once nothing is, the object is gone.
	ConditionRemoved = "Removed"
)

// Reasons of a VolumeManager's conditions.
const (
	// ReasonManagerNotReady: no manager is ready.
	ReasonManagerNotReady = "ManagerNotReady"
	// ReasonAgentsNotReady: more agents are absent than a rollout may replace at once.
	ReasonAgentsNotReady = "AgentsNotReady"
	// ReasonNoNodes: no node has an agent, because none is selected.
	ReasonNoNodes = "NoNodes"
	// ReasonRollingOut: pods of a workload have not their present template, or are not ready yet.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutStuck: pods of a rollout have not become ready for too long.
	ReasonRolloutStuck = "RolloutStuck"
	// ReasonPodsFailing: containers crash, or cannot be started.
	ReasonPodsFailing = "PodsFailing"
	// ReasonImageMissing: neither the object nor the operator's environment names an image.
	ReasonImageMissing = "ImageMissing"
	// ReasonApplyFailed: the API server refused an object.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonPlacementHeldBack: a change of the node selector, the node affinity or the tolerations would take the agent
	// from a node where volumes are in use, or one of the directories would take it from their mounts.
	ReasonPlacementHeldBack = "PlacementHeldBack"
	// ReasonNodesWithoutAgent: nodes run Windows, or the placement of the agents leaves them out.
	ReasonNodesWithoutAgent = "NodesWithoutAgent"
	// ReasonKindsMissing: the kinds of the Prometheus operator are not installed.
	ReasonKindsMissing = "KindsMissing"
	// ReasonFenceSourceBroken: an expression of a fence source does not compile. The manager runs without the source.
	ReasonFenceSourceBroken = "FenceSourceBroken"
	// ReasonFenceSourceMissing: the API server does not serve the resource of a fence source.
	ReasonFenceSourceMissing = "FenceSourceMissing"
	// ReasonFenceSourceForbidden: the manager may not get, list and watch the objects of a fence source.
	ReasonFenceSourceForbidden = "FenceSourceForbidden"
	// ReasonMarkFailed: an object cannot be protected against deletion.
	ReasonMarkFailed = "MarkFailed"
	// ReasonVolumesInUse: the VolumeManager is deleted, but volumes are in use and spec.removal is not Drain.
	ReasonVolumesInUse = "VolumesInUse"
	// ReasonUseUnknown: a kind of Hawser is missing, so that it is not known what is in use.
	ReasonUseUnknown = "UseUnknown"
	// ReasonDraining: volumes are being released.
	ReasonDraining = "Draining"
	// ReasonStoppingPrograms: nothing is in use any more, and manager and agents end.
	ReasonStoppingPrograms = "StoppingPrograms"
	// ReasonCleaningUp: what Hawser wrote is being removed.
	ReasonCleaningUp = "CleaningUp"
)

// WorkloadStatus counts the pods of a workload.
type WorkloadStatus struct {
	// desired pods.
	// +required
	Desired int32 `json:"desired"`
	// updated pods have the present template.
	// +required
	Updated int32 `json:"updated"`
	// ready pods.
	// +required
	Ready int32 `json:"ready"`
}

// VolumeManagerStatus is how far the installation is.
type VolumeManagerStatus struct {
	// observedGeneration is the generation that the operator last reconciled. It is -1 until the first reconcile.
	// +default=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// namespace where Hawser is installed, which has its workloads, its Leases and its locks.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// version of the operator that last reconciled.
	// +optional
	Version string `json:"version,omitempty"`
	// manager counts the pods of the manager.
	// +optional
	Manager *WorkloadStatus `json:"manager,omitempty"`
	// agents counts the pods of the agents.
	// +optional
	Agents *WorkloadStatus `json:"agents,omitempty"`
	// conditions are Available, Progressing, Degraded, Ready and Stalled, which sum up the others, ReplaceCoversNodes,
	// Monitored where monitors are managed, FenceSourcesReady where spec.fencing has sources, and Removed while this
	// object is being deleted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
