/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

// Reasons of what the walk finds about the VolumeManager, beside its conditions.
const (
	// OperatorSilent means that no operator renews its Lease.
	OperatorSilent = "OperatorSilent"
	// ManagerNotObserved means that no operator has reconciled the VolumeManager.
	ManagerNotObserved = "VolumeManagerNotObserved"
)

const managerYAML = "kubectl get volumemanager cluster -o yaml"

// manager are the reasons of a VolumeManager.
var manager = []Entry{
	{Code: "HWS501", Reason: volumesv1alpha1.ReasonManagerNotReady, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "No manager is ready, so nothing is attached or detached.",
		Way:  "The readiness of the manager names the cause.",
		Run:  []string{"kubectl get pods -n {system} -l app.kubernetes.io/component=manager"}},
	{Code: "HWS502", Reason: volumesv1alpha1.ReasonAgentsNotReady, Level: Problem, Depth: Direct, Acts: OnNode,
		Says: "More agents are absent than a rollout may replace at once.",
		Run:  []string{"kubectl get pods -n {system} -l app.kubernetes.io/component=agent -o wide"}},
	{Code: "HWS503", Reason: volumesv1alpha1.ReasonNoNodes, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "No node has an agent, because the VolumeManager selects none.",
		Way:  "Correct nodeSelector, nodeAffinity and tolerations.", Run: []string{managerYAML}},
	{Code: "HWS504", Reason: volumesv1alpha1.ReasonRollingOut, Level: Note, Depth: Direct, Acts: Hawser,
		Says: "A workload of Hawser is not yet what the VolumeManager asks for."},
	{Code: "HWS505", Reason: volumesv1alpha1.ReasonRolloutStuck, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "Pods of a rollout have not become ready for too long.",
		Run:  []string{"kubectl get pods -n {system} -o wide"}},
	{Code: "HWS506", Reason: volumesv1alpha1.ReasonPodsFailing, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "Containers of Hawser crash or cannot be started.",
		Run:  []string{"kubectl get pods -n {system} -o wide"}},
	{Code: "HWS507", Reason: volumesv1alpha1.ReasonImageMissing, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "Neither the VolumeManager nor the operator's environment names an image.",
		Way:  "Set spec.images.", Run: []string{managerYAML}},
	{Code: "HWS508", Reason: volumesv1alpha1.ReasonApplyFailed, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refused an object of Hawser.", Run: []string{managerYAML}},
	{Code: "HWS509", Reason: volumesv1alpha1.ReasonPlacementHeldBack, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "A change is held back, because it would take the agent from nodes with volumes in use.",
		Way:  "Release these volumes, or let the nodes stay selected.", Run: []string{managerYAML}},
	{Code: "HWS510", Reason: volumesv1alpha1.ReasonKindsMissing, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The monitors are left out, because the kinds of the Prometheus operator are not installed."},
	{Code: "HWS511", Reason: volumesv1alpha1.ReasonMarkFailed, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "An object of Hawser cannot be protected against deletion.", Run: []string{managerYAML}},
	{Code: "HWS512", Reason: volumesv1alpha1.ReasonVolumesInUse, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "Hawser is to be removed, but volumes are in use.",
		Way:  "Delete the intents, or set spec.removal to Drain.", Run: []string{"kubectl get vai -A"}},
	{Code: "HWS513", Reason: volumesv1alpha1.ReasonUseUnknown, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "A kind of Hawser is missing, so that it is not known what is in use.",
		Way:  "Install the kinds again.", Run: []string{"kubectl get crd -l volumes.hawser.io/in-use"}},
	{Code: "HWS514", Reason: volumesv1alpha1.ReasonDraining, Level: Waiting, Depth: Direct, Acts: User,
		Says: "Hawser is being removed, and volumes are being released.",
		Way: "Hawser releases what nothing uses. The message names what is left: delete the pods that it names. If a " +
			"volume stays, its node or its intent has the cause.",
		Run: []string{"kubectl get vai -A", managerYAML}},
	{Code: "HWS515", Reason: volumesv1alpha1.ReasonStoppingPrograms, Level: Waiting, Depth: Direct, Acts: Hawser,
		Says: "Hawser is being removed, and manager and agents end.",
		Way:  "If it lasts, the message names the pods that do not end. See their nodes.",
		Run:  []string{"kubectl get pods -n {system} -o wide"}},
	{Code: "HWS516", Reason: volumesv1alpha1.ReasonCleaningUp, Level: Waiting, Depth: Direct, Acts: Hawser,
		Says: "What Hawser wrote is being removed.",
		Way:  "If the message has an error, remove its cause. The operator tries again.",
		Run:  []string{"kubectl logs -n {system} -l app.kubernetes.io/component=operator --tail=50"}},
	{Code: "HWS517", Reason: volumesv1alpha1.ReasonNodesWithoutAgent, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "In attach mode Replace no volume is attached for the pods of nodes without an agent.",
		Way:  "Select these nodes, or let no pods with volumes run there.", Run: []string{managerYAML}},
	{Code: "HWS518", Reason: OperatorSilent, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "No operator renews the Lease of the leader: nothing carries out changes of the VolumeManager, or repairs " +
			"what it made.",
		Way: "Start the operator. Manager and agents go on without it.",
		Run: []string{"kubectl get pods -n {system} -l app.kubernetes.io/component=operator"}},
	{Code: "HWS519", Reason: ManagerNotObserved, Level: Problem, Depth: Symptom, Acts: Cluster,
		Says: "No operator has reconciled this generation of the VolumeManager.",
		Way:  "Run the operator. If one runs, its log has the cause.",
		Run:  []string{"kubectl logs -n {system} -l app.kubernetes.io/component=operator --tail=50"}},
	{Code: "HWS520", Reason: volumesv1alpha1.ReasonFenceSourceBroken, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "An expression of a fence source does not compile. The manager runs without that source.",
		Way:  "The message names the field and the error. Correct it in spec.fencing.sources.", Run: []string{managerYAML}},
	{Code: "HWS521", Reason: volumesv1alpha1.ReasonFenceSourceMissing, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server does not serve the objects of a fence source, so nothing is fenced by it.",
		Way:  "Install the program of the objects, correct group, version and resource, or remove the source.",
		Run:  []string{"kubectl api-resources -o wide", managerYAML}},
	{Code: "HWS522", Reason: volumesv1alpha1.ReasonFenceSourceForbidden, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The manager may not read the objects of a fence source, so nothing is fenced by it.",
		Way:  "Bind a ClusterRole with get, list and watch on the resource to the account that the message names.",
		Run:  []string{managerYAML}},
	{Code: "HWS523", Reason: volumesv1alpha1.ReasonLabelTooLong, Level: Problem, Depth: Root, Acts: Author,
		Says: "Namespace and name of the set are too long for a label, so no Node is labelled where the set is ready.",
		Way:  "Use a shorter name for the set, or a namespace with a shorter one: both and a dot have 63 characters at most.",
		Run:  []string{"kubectl get vais {set} -n {namespace} -o yaml"}},
	{Code: "HWS524", Reason: volumesv1alpha1.ReasonNodesForbidden, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The manager may not patch Nodes, so the labels of sets are not as their intents are.",
		Way:  "Bind the ClusterRole of config/node-writes to the manager's account. The manager tries again every minute.",
		Run:  []string{"kubectl auth can-i patch nodes --as=system:serviceaccount:{system}:hawser-manager"}},
	{Code: "HWS525", Reason: volumesv1alpha1.ReasonLabelRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refuses the label of a set on a Node, most often for an admission policy.",
		Way:  "The message of the set has the answer of the API server. The manager tries again every minute.",
		Run:  []string{"kubectl get vais {set} -n {namespace} -o yaml"}},
	{Code: "HWS526", Reason: volumesv1alpha1.ReasonTooManyLabels, Level: Problem, Depth: Root, Acts: Author,
		Says: "A Node has the labels of 32 older sets of the namespace, and gets no more labels of its sets.",
		Way:  "Delete sets, or have them select fewer nodes. The label follows once there is room.",
		Run:  []string{"kubectl get vais -n {namespace}"}},
}
