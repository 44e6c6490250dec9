/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

func TestGatedPodsAreCountedByReason(t *testing.T) {
	pod := func(name, reason string, status corev1.ConditionStatus, gates ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		for _, g := range gates {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		if reason != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: "Other"}, {Type: volumesv1alpha1.ConditionPlaceable,
				Status: status, Reason: reason}}
		}
		return p
	}
	const ours, missing = volumesv1alpha1.PlacementGate, volumesv1alpha1.ReasonClaimNotFound
	ended := pod("ended", missing, corev1.ConditionFalse, ours)
	ended.Status.Phase = corev1.PodFailed
	api := controllertest.New(t, fake.NewClientBuilder().WithScheme(controllertest.Scheme()),
		pod("a", missing, corev1.ConditionFalse, ours), pod("b", missing, corev1.ConditionFalse, ours),
		pod("queued", missing, corev1.ConditionFalse, ours, "example.com/queue"),
		pod("new", "", "", ours),
		pod("placed", volumesv1alpha1.ReasonPlaced, corev1.ConditionTrue, ours),
		pod("made up", "AReasonOfAnother", corev1.ConditionFalse, ours),
		pod("ungated", missing, corev1.ConditionFalse), pod("foreign", missing, corev1.ConditionFalse, "example.com/queue"),
		ended)
	leading := make(chan struct{})
	c := &gatedCollector{reader: api.Client, leading: leading}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	if got := gatedBy(t, registry); len(got) != 0 {
		t.Errorf("pods by reason of a process that does not lead: %v, want none", got)
	}
	close(leading)
	want := map[string]float64{missing: 2, "OtherGates": 1, "NotDecided": 3}
	for _, reason := range volumesv1alpha1.PlacementReasons() {
		want[reason] += 0
	}
	if got := gatedBy(t, registry); !maps.Equal(got, want) {
		t.Errorf("gated pods by reason: %v, want %v", got, want)
	}
}

func gatedBy(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return values
}
