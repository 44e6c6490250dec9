/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package placement decides on which nodes an agent runs, and which of them lose it by a change.
package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/hawser-io/hawser/internal/controller/cached"
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
		if !Runs(node, from) || Runs(node, to) {
			continue
		}
		if volumes := used(node.Name); volumes != 0 {
			left = append(left, Left{Node: node.Name, Volumes: volumes})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return strings.Compare(a.Node, b.Node) })
	return left
}

// Runs reports whether an agent of the pod template runs on the node, as the controller of DaemonSets decides. A pod
// that is there stays on a node with a new taint NoSchedule. It does not come back after a rollout.
func Runs(node *corev1.Node, pod corev1.PodSpec) bool {
	selected, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: pod}).Match(node)
	if err != nil || !selected { // the API server refuses an affinity that cannot be read
		return false
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints,
		slices.Concat(pod.Tolerations, tolerated), func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)
	return !untolerated
}

// WithoutAgent returns the nodes, by name, where no agent of the pod template runs, although their kubelets leave
// attaching to a controller. Those of Windows are named as such.
func WithoutAgent(nodes []corev1.Node, pod corev1.PodSpec) []string {
	var names []string
	for i := range nodes {
		node := &nodes[i]
		if node.Annotations[cached.ManagedNodeAnnotation] != "true" || Runs(node, pod) {
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
	return fmt.Sprintf("the change of spec.nodeSelector, spec.nodeAffinity or spec.tolerations is held back, because it "+
		"would take the agent from %d node(s) with volumes in use: %s. Release these volumes, or let the nodes stay selected",
		len(left), strings.Join(names, ", "))
}
