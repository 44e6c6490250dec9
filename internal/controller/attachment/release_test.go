/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
)

func TestAReleasedIntentLosesOurFinalizerAndIsNotWaitedForAnyMore(t *testing.T) {
	resource := schema.GroupResource{Group: "volumes.hawser.io", Resource: "volumeattachmentintents"}
	for _, test := range []struct {
		name   string
		answer error
		// failed is reported; remembered: the cache may still show the intent as it was.
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
			n := &decision.Node{Leaving: []*decision.Intent{i, stays}}
			if err := c.release(t.Context(), n, []*decision.Intent{i}); (err != nil) != test.failed {
				t.Errorf("releasing intent i: error %v, want one: %t", err, test.failed)
			}
			if !slices.Equal(n.Leaving, []*decision.Intent{stays}) {
				t.Errorf("leaving intents: %v, want stays alone", namesOf(n.Leaving))
			}
			if version, remembered := c.released.Load(i.Object.UID); remembered != test.remembered || remembered &&
				version != i.Object.ResourceVersion {
				t.Errorf("intent i is remembered as released at version %v: %t, want %t at version %s", version, remembered,
					test.remembered, i.Object.ResourceVersion)
			}
			live := &volumesv1alpha1.VolumeAttachmentIntent{}
			if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(i.Object), live); err != nil {
				t.Fatal(err)
			}
			if test.answer == nil && !slices.Equal(live.Finalizers, []string{"another"}) {
				t.Errorf("finalizers of intent i: %v, want another alone", live.Finalizers)
			}
		})
	}
}

func TestIntentsReleasedTogetherAreAllDropped(t *testing.T) {
	n := on("a", leaving("h", "i", "j", "k"))
	n.Drop([]*decision.Intent{n.Leaving[0], n.Leaving[2]})
	if got := namesOf(n.Leaving); !slices.Equal(got, []string{"default/i", "default/k"}) {
		t.Errorf("leaving intents: %v, want default/i and default/k", got)
	}
}
