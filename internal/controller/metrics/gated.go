/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

var podsGated = prometheus.NewDesc("hawser_pods_gated",
	"Pods with the scheduling gate "+volumesv1alpha1.PlacementGate+", by why they wait. NotDecided: the manager has not "+
		"reported why yet. OtherGates: the pod has gates of others too. Every reason has a value, also 0.",
	[]string{"reason"}, nil)

// Why a gated pod waits, if its condition does not have it.
const (
	// notDecided: the manager has not decided on the pod yet, or is about to lift its gate.
	notDecided = "NotDecided"
	// otherGates: the pod has gates of others too.
	otherGates = "OtherGates"
)

// gatedCollector counts the gated pods of the cache each time it is asked.
type gatedCollector struct {
	reader  client.Reader
	leading <-chan struct{}
}

// Describe is part of a prometheus.Collector.
func (c *gatedCollector) Describe(ch chan<- *prometheus.Desc) { ch <- podsGated }

// Collect is part of a prometheus.Collector. Every reason has a value, so that an alert needs no default.
func (c *gatedCollector) Collect(ch chan<- prometheus.Metric) {
	if !isClosed(c.leading) {
		return
	}
	pods := &corev1.PodList{}
	err := c.reader.List(context.Background(), pods, client.MatchingFields{index.Gated: index.AnyReason})
	if err != nil {
		return // the cache has not been filled
	}
	count := map[string]int{notDecided: 0, otherGates: 0}
	for _, reason := range volumesv1alpha1.PlacementReasons() {
		count[reason] = 0
	}
	for i := range pods.Items {
		count[whyGated(&pods.Items[i], count)]++
	}
	for reason, n := range count {
		ch <- prometheus.MustNewConstMetric(podsGated, prometheus.GaugeValue, float64(n), reason)
	}
}

// whyGated is one of the known reasons: another client may write any into the condition.
func whyGated(pod *corev1.Pod, known map[string]int) string {
	if len(pod.Spec.SchedulingGates) > 1 {
		return otherGates
	}
	c := index.Placeable(pod)
	if c == nil || c.Status != corev1.ConditionFalse {
		return notDecided
	}
	if _, ok := known[c.Reason]; !ok {
		return notDecided
	}
	return c.Reason
}
