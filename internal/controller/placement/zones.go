/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/controller/cached"
)

// ofZones are the nodes that the labels of the PersistentVolume allow, as the scheduler's plugin VolumeZone has it for
// claims that it sees: those with the same labels, and those without any such label. The latter are an alternative only
// where a node of today is one of them. A pod with terms can take in a single alternative: it gets the volume's own
// zone, except in a cluster without zones, because nodes without one are often closed to pods, or get their labels yet.
func (f facts) ofZones(v *volumeFacts) alternatives {
	t := zonesOf(v.pv)
	withZone := func(node *corev1.Node) bool { return !withoutZone(node) }
	switch {
	case empty(t):
		return anyNode()
	case !slices.ContainsFunc(f.nodes, withoutZone):
		return alternatives{t}
	case len(ownTerms(f.pod)) > 0 && slices.ContainsFunc(f.nodes, withZone):
		return alternatives{t}
	}
	return alternatives{t, noZone()}
}

// zonesOf requires the label of today for one of old: Kubernetes gives both to nodes.
func zonesOf(pv *corev1.PersistentVolume) (t term) {
	if pv == nil {
		return t
	}
	for _, key := range cached.ZoneLabels {
		// A regional volume has several zones. The scheduler ignores what it cannot read.
		zones := strings.Split(pv.Labels[key], "__")
		slices.Sort(zones)
		if slices.Contains(zones, "") {
			continue
		}
		switch key {
		case corev1.LabelFailureDomainBetaZone:
			key = corev1.LabelTopologyZone
		case corev1.LabelFailureDomainBetaRegion:
			key = corev1.LabelTopologyRegion
		}
		t = join(t, term{MatchExpressions: []corev1.NodeSelectorRequirement{in(key, zones...)}})
	}
	return t
}

func withoutZone(node *corev1.Node) bool {
	return !slices.ContainsFunc(cached.ZoneLabels, func(key string) bool { _, ok := node.Labels[key]; return ok })
}

// noZone is withoutZone as a term.
func noZone() (t term) {
	for _, key := range cached.ZoneLabels {
		t.MatchExpressions = append(t.MatchExpressions,
			corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	return t
}
