/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

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
		Run:  []string{"kubectl get vai -n {namespace} -l volumes.hawser.io/intent-set"}},
	{Code: "HWS154", Reason: volumesv1alpha1.ReasonSelectorInvalid, Level: Problem, Depth: Root, Acts: Author,
		Says: "The node selector of a set cannot be read.",
		Way:  "Correct spec.nodeSelector.", Run: []string{"kubectl get vais -n {namespace} -o wide"}},
}
