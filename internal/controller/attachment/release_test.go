/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestWhenAnIntentNeedsNoMoreWordOfTheAgent(t *testing.T) {
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
				t.Errorf("acknowledged %t", got)
			}
		})
	}
}

func TestAReleasedIntentLosesOurFinalizerAndIsNotWaitedForAnyMore(t *testing.T) {
	resource := schema.GroupResource{Group: "volumes.hawser.io", Resource: "volumeattachmentintents"}
	for _, test := range []struct {
		name   string
		answer error
		// failed is told; remembered: the cache may still show the intent as it was.
		failed, remembered bool
	}{
		{name: "it is released", remembered: true},
		{name: "a newer one is on its way here", answer: apierrors.NewConflict(resource, "i", nil), remembered: true},
		{name: "it is gone", answer: apierrors.NewNotFound(resource, "i")},
		{name: "the API server is down", answer: errDown, failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			i, stays := intentNamed("i"), intentNamed("stays")
			i.Object.UID, i.Object.Finalizers = "uid-i", []string{"another", volumesv1alpha1.ReleaseFinalizer}
			c, _ := over(t, i.Object.DeepCopy())
			if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(i.Object), i.Object); err != nil {
				t.Fatal(err)
			}
			if test.answer != nil {
				c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return test.answer
					},
				})
			}
			n := &Node{Leaving: []*Intent{i, stays}}
			if err := c.release(t.Context(), n, []*Intent{i}); (err != nil) != test.failed {
				t.Errorf("failed: %v", err)
			}
			if !slices.Equal(n.Leaving, []*Intent{stays}) {
				t.Errorf("leaving are %v", namesOf(n.Leaving))
			}
			if version, remembered := c.released.Load(i.Object.UID); remembered != test.remembered || remembered &&
				version != i.Object.ResourceVersion {
				t.Errorf("remembered at %v", version)
			}
			live := &volumesv1alpha1.VolumeAttachmentIntent{}
			if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(i.Object), live); err != nil {
				t.Fatal(err)
			}
			if test.answer == nil && !slices.Equal(live.Finalizers, []string{"another"}) {
				t.Errorf("finalizers %v", live.Finalizers)
			}
		})
	}
}

func TestThoseThatAreReleasedTogetherAreAllDropped(t *testing.T) {
	n := on("a", leaving("h", "i", "j", "k"))
	n.drop([]*Intent{n.Leaving[0], n.Leaving[2]})
	if got := namesOf(n.Leaving); !slices.Equal(got, []string{"default/i", "default/k"}) {
		t.Errorf("leaving are %v", got)
	}
}
