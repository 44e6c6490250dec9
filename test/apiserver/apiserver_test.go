/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestANewIntentIsNotObservedYet(t *testing.T) {
	_, c := Start(t)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: "node-a",
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}},
		},
	}
	if err := c.Create(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
	if intent.Status.ObservedGeneration != -1 || intent.Spec.DesiredState != volumesv1alpha1.DesiredPublished {
		t.Errorf("new intent data: %+v, want the defaults: observed generation -1 and Published", intent)
	}
}
