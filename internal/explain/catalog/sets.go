/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

// Reasons of what the walk finds about a set, beside its conditions.
const (
	// SetNotObserved means that no manager has reconciled the set.
	SetNotObserved = "SetNotObserved"
	// SetRollingOut is RollingOut of a set, which of a VolumeManager is about workloads.
	SetRollingOut = "IntentsRollingOut"
	// SetEmpty means that the set has no node.
	SetEmpty = "SetWithoutNode"
	// SetDeleting means that the set is being deleted.
	SetDeleting = "SetDeleting"
)

// sets are the reasons of a VolumeAttachmentIntentSet.
var sets = []Entry{
	{Code: "HWS151", Reason: volumesv1alpha1.ReasonNameTaken, Level: Problem, Depth: Root, Acts: Author,
		Says: "An object that a set did not make has the name of one of its intents or claims.",
		Way:  "Delete or rename that object, or give the set another name. The message of the set names it.",
		Run:  []string{"kubectl get vais -n {namespace} -o wide"}},
	{Code: "HWS152", Reason: volumesv1alpha1.ReasonIntentRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refuses an intent or a claim of a set: a quota is used up, or an admission policy does not " +
			"allow it.",
		Way: "The message of the set has the answer of the API server. The set tries again every minute.",
		Run: []string{"kubectl get vais -n {namespace} -o wide", "kubectl get resourcequotas -n {namespace}"}},
	{Code: "HWS153", Reason: volumesv1alpha1.ReasonIntentsFailing, Level: Problem, Depth: Direct, Acts: Author,
		Says: "Intents of a set have an error that no retry can fix.",
		Way:  "The message of the set names the first of them.",
		Run:  []string{"kubectl get vai -n {namespace} -l volumes.hawser.io/intent-set={set}"}},
	{Code: "HWS154", Reason: volumesv1alpha1.ReasonSelectorInvalid, Level: Problem, Depth: Root, Acts: Author,
		Says: "The node selector of a set cannot be read, or selects by labels of sets. The intents stay as they are.",
		Way:  "Correct spec.nodeSelector.", Run: []string{"kubectl get vais -n {namespace} -o wide"}},
	{Code: "HWS155", Reason: SetNotObserved, Level: Problem, Depth: Symptom, Acts: Cluster,
		Says: "No manager has reconciled this generation of the set.",
		Way:  "Run a manager.",
		Instead: []Instead{{Object: Leader, State: Present,
			Way: "A manager leads. If it lasts, its log has what keeps it from the set.",
			Run: []string{"kubectl logs -n {system} -l app.kubernetes.io/component=manager --tail=50"}}},
		Run: []string{"kubectl get lease hawser-manager -n {system}", "kubectl get pods -n {system}"}},
	{Code: "HWS156", Reason: SetRollingOut, Level: Waiting, Depth: Symptom, Acts: Hawser,
		Says: "The set replaces its intents by ones with its present template, node by node.",
		Way:  "If it lasts, an intent of it is not ready: spec.rollout.maxUnavailable limits how many may be.",
		Run:  []string{"kubectl get vai -n {namespace} -l volumes.hawser.io/intent-set={set}"}},
	{Code: "HWS157", Reason: SetEmpty, Level: Note, Depth: Direct, Acts: Author,
		Says: "The set has no node: its selector matches no Node, or the namespace may use none of them.",
		Way:  "Correct spec.nodeSelector, or the labels of the Nodes.",
		Run:  []string{"kubectl get vais {set} -n {namespace} -o jsonpath='{.spec.nodeSelector}'"}},
	{Code: "HWS158", Reason: SetDeleting, Level: Waiting, Depth: Symptom, Acts: Hawser,
		Says: "The set is being deleted. It goes once the volumes of its intents are released.",
		Way:  "If it lasts, see what its intents wait for.",
		Run:  []string{"kubectl get vai -n {namespace} -l volumes.hawser.io/intent-set={set}"}},
}
