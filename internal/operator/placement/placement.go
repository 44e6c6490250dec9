/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package placement finds the nodes that a change of the node selector or of the tolerations takes the agent from.
package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// mostNames of nodes in a message.
const mostNames = 5

// tolerated by every pod of a DaemonSet, whatever its template tolerates.
var tolerated = func() []corev1.Toleration {
	var tolerations []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure,
		corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return tolerations
}()

// Left is a node that loses its agent, and the number of volumes in use there. A negative number is not known.
type Left struct {
	Node    string
	Volumes int
}

// Leaving returns the nodes, by name, where an agent ran under the pod template from, where none would run under the
// template to, and where volumes are in use.
func Leaving(nodes []corev1.Node, used func(node string) int, from, to corev1.PodSpec) []Left {
	var left []Left
	for i := range nodes {
		node := &nodes[i]
		if !runs(node, from) || runs(node, to) {
			continue
		}
		if volumes := used(node.Name); volumes != 0 {
			left = append(left, Left{Node: node.Name, Volumes: volumes})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return strings.Compare(a.Node, b.Node) })
	return left
}

// runs: a pod that is there stays on a node with a new taint NoSchedule. It does not come back after a rollout.
func runs(node *corev1.Node, pod corev1.PodSpec) bool {
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints,
		slices.Concat(pod.Tolerations, tolerated), func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)
	return !untolerated
}

// Message counts and names the nodes.
func Message(left []Left) string {
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
	return fmt.Sprintf("the change of spec.nodeSelector or spec.tolerations is held back, because it would take the "+
		"agent from %d node(s) with volumes in use: %s. Release these volumes, or let the nodes stay selected",
		len(left), strings.Join(names, ", "))
}
