/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	noon  = metav1.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	later = metav1.Date(2026, 1, 2, 12, 5, 0, 0, time.UTC)
)

func TestANodeIsReadyOnlyIfItsReadyConditionIsTrue(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions []corev1.NodeCondition
		ready      bool
		since      metav1.Time
	}{
		{"no conditions", nil, false, metav1.Time{}},
		{"another condition only", []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastTransitionTime: noon},
		}, false, metav1.Time{}},
		{"Ready after another condition", []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastTransitionTime: noon},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: later},
		}, true, later},
		{"not Ready", []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: noon},
		}, false, noon},
		{"unknown", []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: noon},
		}, false, noon},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}
		if ready, at := Readiness(node); ready != c.ready || !at.Equal(&c.since) || Ready(node) != c.ready {
			t.Errorf("Node with %s: ready %t since %s, want %t since %s", c.name, ready, at, c.ready, c.since)
		}
	}
}
