/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestWhenAnIntentNeedsNoFurtherReportOfTheAgent(t *testing.T) {
	published := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: volumesv1alpha1.ConditionPublished, Status: status, Reason: reason}}
	}
	policy := &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Hour}}
	for _, test := range []struct {
		name       string
		publisher  volumesv1alpha1.Publisher
		policy     *volumesv1alpha1.DetachPolicy
		conditions []metav1.Condition
		want       bool
	}{
		{name: "the agent has said nothing"},
		{name: "the agent publishes it", conditions: published(metav1.ConditionTrue, "Published")},
		{name: "the agent fails to", conditions: published(metav1.ConditionFalse, "Failed")},
		{name: "the agent says released, but also that it is published",
			conditions: published(metav1.ConditionTrue, volumesv1alpha1.ReasonReleased)},
		{name: "the agent has released it",
			conditions: published(metav1.ConditionFalse, volumesv1alpha1.ReasonReleased), want: true},
		{name: "the kubelet publishes it", publisher: volumesv1alpha1.PublisherKubelet, want: true},
		{name: "the kubelet publishes it, and its policy may be needed",
			publisher: volumesv1alpha1.PublisherKubelet, policy: policy},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := intentNamed("i").Object
			i.Spec.Publisher, i.Spec.DetachPolicy, i.Status.Conditions = test.publisher, test.policy, test.conditions
			if got := acknowledged(i); got != test.want {
				t.Errorf("intent i, of which %s: acknowledged %t, want %t", test.name, got, test.want)
			}
		})
	}
}
