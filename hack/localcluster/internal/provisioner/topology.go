/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// requirement names the places where the volume may be made: the selected node's, or any of a node
// that runs the driver.
func requirement(driver, selected string, nodes []*corev1.Node, csiNodes []*storagev1.CSINode) (*csi.TopologyRequirement, error) {
	labels := map[string]map[string]string{}
	for _, node := range nodes {
		labels[node.Name] = node.Labels
	}
	var places []*csi.Topology
	for _, csiNode := range csiNodes {
		if selected != "" && csiNode.Name != selected {
			continue
		}
		segments := segmentsOf(driver, csiNode, labels[csiNode.Name])
		known := slices.ContainsFunc(places, func(t *csi.Topology) bool { return maps.Equal(t.GetSegments(), segments) })
		if len(segments) > 0 && !known {
			places = append(places, &csi.Topology{Segments: segments})
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("driver %s is not registered with a topology on %s", driver, orElse(selected, "any node"))
	}
	return &csi.TopologyRequirement{Requisite: places, Preferred: places}, nil
}

// orElse names the node for a message.
func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return "node " + value
}

// segmentsOf reads the driver's topology keys off the node's labels; nothing when one is missing.
func segmentsOf(driver string, csiNode *storagev1.CSINode, labels map[string]string) map[string]string {
	for _, registered := range csiNode.Spec.Drivers {
		if registered.Name != driver {
			continue
		}
		segments := map[string]string{}
		for _, key := range registered.TopologyKeys {
			value, ok := labels[key]
			if !ok {
				return nil
			}
			segments[key] = value
		}
		return segments
	}
	return nil
}

// affinity restricts a volume to the nodes of its topologies, each of which is enough.
func affinity(topologies []*csi.Topology) *corev1.VolumeNodeAffinity {
	var terms []corev1.NodeSelectorTerm
	for _, topology := range topologies {
		var term corev1.NodeSelectorTerm
		for _, key := range slices.Sorted(maps.Keys(topology.GetSegments())) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{topology.GetSegments()[key]},
			})
		}
		if len(term.MatchExpressions) == 0 {
			return nil // accessible from everywhere
		}
		terms = append(terms, term)
	}
	if len(terms) == 0 {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}
