/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// limitUses keeps out the youngest of the intents that exceed what a node takes of one volume. An intent that is pinned
// stays: the agent may have begun to carry it out. Intents of the kubelet's cost the agent nothing.
func limitUses(f *Facts) {
	waits := func(i *Intent) bool { return i.ByAgent() && !i.Pinned() && i.mayAttach() }
	for _, n := range f.Nodes {
		free := volumesv1alpha1.MaxUses
		var waiting []*Intent
		for _, i := range append(slices.Clone(n.Leaving), n.Wanted...) {
			if i.ByAgent() && i.Pinned() {
				free--
			}
		}
		for _, i := range n.Wanted {
			if waits(i) {
				waiting = append(waiting, i)
			}
		}
		if len(waiting) <= max(free, 0) {
			continue
		}
		slices.SortFunc(waiting, func(i, j *Intent) int {
			if i.older(j) {
				return -1
			}
			return 1
		})
		n.Refused = append(n.Refused, waiting[max(free, 0):]...)
		first := waiting[max(free, 0)]
		n.Wanted = slices.DeleteFunc(slices.Clone(n.Wanted), func(i *Intent) bool { return waits(i) && !i.older(first) })
	}
}

// tooManyUses is the finding of an intent that limitUses keeps out. It is the same as long as the intent waits.
func tooManyUses(n *Node) *Finding {
	return not(volumesv1alpha1.ReasonTooManyUses,
		"node %s takes at most %d intents of one volume and has as many; this one waits until another one is deleted",
		n.Name, volumesv1alpha1.MaxUses)
}
