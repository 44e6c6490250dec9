/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/install"
)

// mostNames of nodes in a message.
const mostNames = 5

// leftNode is a node that loses its agent, and the number of volumes in use there. A negative number is not known.
type leftNode struct {
	Node    string
	Volumes int
}

// leaving returns the nodes, by name, where an agent ran under the pod template from, where none would run under the
// template to, and where volumes are in use.
func leaving(nodes []corev1.Node, used func(node string) int, from, to corev1.PodSpec) []leftNode {
	var left []leftNode
	for i := range nodes {
		node := &nodes[i]
		if !install.AgentRunsOn(node, from) || install.AgentRunsOn(node, to) {
			continue
		}
		if volumes := used(node.Name); volumes != 0 {
			left = append(left, leftNode{Node: node.Name, Volumes: volumes})
		}
	}
	slices.SortFunc(left, func(a, b leftNode) int { return strings.Compare(a.Node, b.Node) })
	return left
}

// withoutAgent returns the nodes, by name, where no agent of the pod template runs, although their kubelets leave
// attaching to a controller. Those of Windows are named as such.
func withoutAgent(nodes []corev1.Node, pod corev1.PodSpec) []string {
	var names []string
	for i := range nodes {
		node := &nodes[i]
		if node.Annotations[cached.ManagedNodeAnnotation] != "true" || install.AgentRunsOn(node, pod) {
			continue
		}
		name := node.Name
		if os := node.Labels[corev1.LabelOSStable]; os != "" && os != "linux" {
			name += " (" + os + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// leavingMessage counts and names the nodes.
func leavingMessage(left []leftNode) string {
	names := make([]string, 0, mostNames)
	for _, l := range left[:min(len(left), mostNames)] {
		count := "unknown"
		if l.Volumes >= 0 {
			count = fmt.Sprint(l.Volumes)
		}
		names = append(names, fmt.Sprintf("%s (%s)", l.Node, count))
	}
	if more := len(left) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the change of spec.nodeSelector, spec.nodeAffinity or spec.tolerations is held back, because it "+
		"would take the agent from %d node(s) with volumes in use: %s. Release these volumes, or let the nodes stay selected",
		len(left), strings.Join(names, ", "))
}
