/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// limitUses keeps out the youngest of the intents that exceed what a node takes of one volume, or of one namespace. An
// intent that is pinned stays: the agent may have begun to carry it out. Intents of the kubelet's cost the agent
// nothing.
func limitUses(f *Facts) {
	for _, n := range f.Nodes {
		refused := n.excessUses()
		n.Refused = append(n.Refused, refused...)
		n.Wanted = slices.DeleteFunc(slices.Clone(n.Wanted), func(i *Intent) bool { return i.refused })
	}
}

func (n *Node) excessUses() (refused []*Intent) {
	free := volumesv1alpha1.MaxUses
	for _, i := range append(slices.Clone(n.Leaving), n.Wanted...) {
		if i.ByAgent() && i.Pinned() {
			free--
		}
	}
	admitted := map[string]int{}
	for _, i := range n.newUses() {
		namespace := i.Object.Namespace
		full := n.NamespaceUses[namespace]+admitted[namespace] >= volumesv1alpha1.MaxNamespaceUses
		if i.refused, i.namespaceFull = free <= 0 || full, full; i.refused {
			refused = append(refused, i)
			continue
		}
		free--
		admitted[namespace]++
	}
	return refused
}

// newUses are the intents that may be pinned next, the oldest first.
func (n *Node) newUses() []*Intent {
	var uses []*Intent
	for _, i := range n.Wanted {
		if i.ByAgent() && !i.Pinned() && i.mayAttach() {
			uses = append(uses, i)
		}
	}
	slices.SortFunc(uses, func(i, j *Intent) int {
		if i.older(j) {
			return -1
		}
		return 1
	})
	return uses
}

// tooManyUses is the finding of an intent that limitUses keeps out. It is the same as long as the intent waits for the
// same.
func tooManyUses(n *Node, i *Intent) *Finding {
	if i.namespaceFull {
		return not(volumesv1alpha1.ReasonTooManyUses,
			"node %s takes at most %d intents of one namespace and has as many; this one waits until another intent of "+
				"namespace %s is deleted there",
			n.Name, volumesv1alpha1.MaxNamespaceUses, i.Object.Namespace)
	}
	return not(volumesv1alpha1.ReasonTooManyUses,
		"node %s takes at most %d intents of one volume and has as many; this one waits until another one is deleted",
		n.Name, volumesv1alpha1.MaxUses)
}

// WaitingNamespaces are the namespaces whose intents of the volume wait for the end of others on the node, each with
// the oldest of these.
func (n *Node) WaitingNamespaces() map[string]*Intent {
	waiting := map[string]*Intent{}
	for _, i := range n.Refused {
		if first := waiting[i.Object.Namespace]; i.namespaceFull && (first == nil || i.older(first)) {
			waiting[i.Object.Namespace] = i
		}
	}
	return waiting
}

// Admitted are the intents that the agent carries out, or will once they are pinned.
func (n *Node) Admitted() []*Intent {
	var admitted []*Intent
	for _, i := range n.Wanted {
		if i.ByAgent() && (i.Pinned() || i.mayAttach()) {
			admitted = append(admitted, i)
		}
	}
	return admitted
}
