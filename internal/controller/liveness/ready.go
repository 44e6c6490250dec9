/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Readiness of the Node: whether it is Ready, and since when it is or is not.
func Readiness(node *corev1.Node) (ready bool, since metav1.Time) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime
		}
	}
	return false, metav1.Time{}
}

// Ready reports whether the Node is Ready.
func Ready(node *corev1.Node) bool {
	ready, _ := Readiness(node)
	return ready
}

// kubeletLost reports whether Kubernetes has not heard the Node's kubelet in time: it sets Ready to Unknown then.
func kubeletLost(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}
