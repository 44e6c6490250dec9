/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

const showAffinity = "kubectl get pod {pod} -n {namespace} -o jsonpath='{.spec.affinity}'"

// placement are about pods with inline volumes, which Hawser restricts to the nodes that their volumes can be used on.
var placement = []Entry{
	{Code: "HWS640", Reason: volumesv1alpha1.ReasonPlaced, Level: Note, Depth: Direct,
		Says: "The pod waited, and may now run on the nodes that can use its inline volumes."},
	{Code: "HWS641", Reason: volumesv1alpha1.ReasonAlternativeChosen, Level: Note, Depth: Direct,
		Says: "The volumes of the pod leave several alternatives, and the pod's own affinity allows only one of them.",
		Run:  []string{showAffinity}},
	{Code: "HWS642", Reason: volumesv1alpha1.ReasonEveryNodeFull, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "No node of today has room for the volumes of the pod, so it runs on a node that is added.",
		Way:  "Add a node. Or make room and create the pod again: the affinity of a pod without a gate cannot change.",
		Run:  []string{showAffinity, "kubectl get csinodes"}},
	{Code: "HWS643", Reason: volumesv1alpha1.ReasonAttributesInvalid, Level: Problem, Depth: Root, Acts: Author,
		Says: "An inline volume of the pod has other attributes than one of claim and intent.",
		Way:  "Set volumeAttributes to {claim: NAME} or {intent: NAME}, and create the pod again.",
		Run:  []string{describePod}},
	{Code: "HWS644", Reason: volumesv1alpha1.ReasonIntentNotFound, Level: Problem, Depth: Root, Acts: Author,
		Says: "The namespace of the pod has no intent of the name that an inline volume has.",
		Way:  "Create the intent.", Run: []string{"kubectl get vai -n {namespace}"}},
	{Code: "HWS645", Reason: volumesv1alpha1.ReasonIntentDeleting, Level: Problem, Depth: Root, Acts: Author,
		Says: "The intent of an inline volume is being deleted.",
		Way:  "Wait until it has gone, and create it again. If it stays, its own report has what it waits for.",
		Run:  []string{"kubectl get vai -n {namespace}"}},
	{Code: "HWS646", Reason: volumesv1alpha1.ReasonStorageClassNotFound, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The StorageClass of the claim does not exist.",
		Way:  "Create it, or let the claim name another one.", Run: []string{"kubectl get storageclasses"}},
	{Code: "HWS647", Reason: volumesv1alpha1.ReasonNoProvisioner, Level: Problem, Depth: Root, Acts: Author,
		Says: "The claim waits for its first consumer, and its StorageClass has no provisioner: only the scheduler can " +
			"choose between volumes that exist.",
		Way: "Let a pod use the claim itself once, or set spec.volumeName of the claim.",
		Run: []string{"kubectl get pvc -n {namespace}"}},
	{Code: "HWS648", Reason: volumesv1alpha1.ReasonConstraintsContradict, Level: Problem, Depth: Root, Acts: Author,
		Says: "No node can have all volumes of the pod and satisfy the pod's own node selector and affinity.",
		Way:  "Change the pod, or move a volume.", Run: []string{showAffinity}},
	{Code: "HWS649", Reason: volumesv1alpha1.ReasonPlacementRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server does not accept the pod with its new affinity, or has not answered. The manager tries again.",
		Way:  "The message has its answer, such as that of an admission policy.", Run: []string{describePod}},
}
