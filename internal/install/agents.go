/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package install

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// AgentLabels are those of the agents' DaemonSet, whatever its name is.
var AgentLabels = map[string]string{"app.kubernetes.io/name": "hawser", "app.kubernetes.io/component": "agent"}

// tolerated by every pod of a DaemonSet, whatever its template tolerates.
var tolerated = func() []corev1.Toleration {
	var tolerations []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure,
		corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return tolerations
}()

// AgentRunsOn reports whether an agent of the pod template runs on the node, as the controller of DaemonSets decides. A
// pod that is there stays on a node with a new taint NoSchedule. It does not come back after a rollout.
func AgentRunsOn(node *corev1.Node, pod corev1.PodSpec) bool {
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
