/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

var (
	intentConditions = prometheus.NewDesc("hawser_intent_conditions",
		"Intents by the type, status and reason of their conditions. An intent counts once for each of its conditions.",
		[]string{"condition", "status", "reason"}, nil)
	oldestWaiting = prometheus.NewDesc("hawser_oldest_waiting_intent_seconds",
		"How long the intent that has waited longest in this phase has not been ready, in seconds; 0 if none waits. "+
			"Every phase has a value: "+phaseResolve+", "+phaseAttach+", "+phaseStage+", "+phasePublish+"; "+phaseAgent+
			" while the agent does not report, "+phaseRelease+" once the intent is being deleted.",
		[]string{"phase"}, nil)
)

// What an intent that is not ready waits for.
const (
	phaseResolve = "resolve"
	phaseAttach  = "attach"
	phaseStage   = "stage"
	phasePublish = "publish"
	phaseAgent   = "agent"
	phaseRelease = "release"
)

// intentCollector counts the intents of the cache each time it is asked.
type intentCollector struct {
	reader  client.Reader
	leading <-chan struct{}
	clock   clock.PassiveClock
}

// Describe is part of a prometheus.Collector.
func (c *intentCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- intentConditions
	ch <- oldestWaiting
}

// Collect is part of a prometheus.Collector.
func (c *intentCollector) Collect(ch chan<- prometheus.Metric) {
	if !isClosed(c.leading) {
		return
	}
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.reader.List(context.Background(), intents); err != nil {
		return // the cache has not been filled
	}
	oldest := map[string]time.Duration{phaseResolve: 0, phaseAttach: 0, phaseStage: 0, phasePublish: 0, phaseAgent: 0,
		phaseRelease: 0}
	count := conditionCounts{}
	for i := range intents.Items {
		intent := &intents.Items[i]
		count.add(intent.Status.Conditions)
		if phase, since := waiting(intent); phase != "" {
			oldest[phase] = max(oldest[phase], c.clock.Since(since))
		}
	}
	count.collect(ch, intentConditions)
	for phase, age := range oldest {
		ch <- prometheus.MustNewConstMetric(oldestWaiting, prometheus.GaugeValue, age.Seconds(), phase)
	}
}

// conditionCounts has how many objects have a condition, by its type, status and reason.
type conditionCounts map[[3]string]int

func (n conditionCounts) add(conditions []metav1.Condition) {
	for _, c := range conditions {
		n[[3]string{c.Type, string(c.Status), c.Reason}]++
	}
}

func (n conditionCounts) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	for labels, count := range n {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count), labels[:]...)
	}
}

// waiting returns the phase that an intent is in, and since when it has not been ready; no phase if it is ready. The
// time does not change with the phase: a wait that alternates between two reasons is one wait.
func waiting(intent *volumesv1alpha1.VolumeAttachmentIntent) (string, time.Time) {
	if !intent.DeletionTimestamp.IsZero() {
		return phaseRelease, intent.DeletionTimestamp.Time
	}
	since := intent.CreationTimestamp.Time
	ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready != nil {
		since = ready.LastTransitionTime.Time
	}
	switch {
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return "", time.Time{}
	case ready != nil && ready.Reason == volumesv1alpha1.ReasonAgentUnreachable:
		return phaseAgent, since
	}
	for _, step := range []struct{ condition, phase string }{
		{volumesv1alpha1.ConditionResolved, phaseResolve}, {volumesv1alpha1.ConditionAttached, phaseAttach},
		{volumesv1alpha1.ConditionStaged, phaseStage},
	} {
		if !meta.IsStatusConditionTrue(intent.Status.Conditions, step.condition) {
			return step.phase, since
		}
	}
	return phasePublish, since
}
