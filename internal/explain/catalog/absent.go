/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import "strings"

// Installation is Hawser itself: Gone in a cluster without it.
const Installation = "Hawser itself"

// absent has what sentences name of Hawser, and what they have in a cluster without it.
var absent = strings.NewReplacer(
	"pods and intents", "pods", "intents and pods", "pods", "No pod and no intent", "No pod", "no pod and no intent",
	"no pod", "pod or an intent", "pod", "pod or intent", "pod", "intent or the pod", "pod", "intent or pod", "pod",
)

// withoutHawser is the entry in a cluster in which Kubernetes does what Hawser would do.
func (e Entry) withoutHawser() Entry {
	e.Says, e.Way = absent.Replace(e.Says), absent.Replace(e.Way)
	return e
}
