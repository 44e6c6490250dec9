/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/status"
)

func TestAStatusIsWrittenOnlyAtTheVersionThatWasDecidedOn(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(intent("")).
		WithStatusSubresource(&volumesv1alpha1.VolumeAttachmentIntent{}).Build()
	key := client.ObjectKeyFromObject(intent(""))
	read := func() *volumesv1alpha1.VolumeAttachmentIntent {
		now := &volumesv1alpha1.VolumeAttachmentIntent{}
		if err := api.Get(t.Context(), key, now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	cached, reported := read(), read()
	reported.Status.Path = "/published"
	if err := api.Status().Update(t.Context(), reported); err != nil {
		t.Fatal(err)
	}
	r, _, _ := fixture()
	r.Client = controllertest.Strict(t, api)
	attached := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		status.Set(i, volumesv1alpha1.ConditionAttached, metav1.ConditionTrue, volumesv1alpha1.ReasonAttached, "")
	}
	if err := r.update(t.Context(), cached, attached); err != nil {
		t.Errorf("status of an intent that the agent has reported on meanwhile: error %v, want none: its event follows", err)
	}
	if now := read(); now.Status.Path == "" || len(now.Status.Conditions) > 0 {
		t.Errorf("status of the intent: %+v, want what the agent has reported, and nothing else", now.Status)
	}
	if err := r.update(t.Context(), read(), attached); err != nil {
		t.Fatal(err)
	}
	if now := read(); now.Status.Path == "" || len(now.Status.Conditions) != 1 {
		t.Errorf("status of the intent: %+v, want what the agent has reported, and Attached", now.Status)
	}
}
