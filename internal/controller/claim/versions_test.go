/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// newClaim is a claim with its volume, whose node is to expand it and has.
func newClaim() []client.Object {
	size := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "uid"}}
	claim.Spec.VolumeName, claim.Status.Capacity, claim.Status.Phase = "pv", size("1Gi"), corev1.ClaimBound
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.Capacity, pv.Spec.ClaimRef = size("2Gi"), &corev1.ObjectReference{UID: "uid"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "handle"}
	state, capacity := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, resource.MustParse(
		"2Gi")
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{
		{VolumeName: "kubernetes.io/csi/driver^handle", InUse: true, Capacity: &capacity}}
	return []client.Object{claim, pv, state}
}

func serving(objects []client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).
		WithStatusSubresource(&corev1.PersistentVolumeClaim{}).
		WithIndex(&volumesv1alpha1.NodeVolumeState{}, index.Volume, func(o client.Object) []string {
			return []string{o.(*volumesv1alpha1.NodeVolumeState).Status.Volumes[0].VolumeName}
		}).Build()
}

func readClaim(t *testing.T, c client.Reader) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "c"}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func TestAClaimIsChangedOnlyAtTheVersionThatWasDecidedOn(t *testing.T) {
	api := serving(newClaim())
	c := &Controller{Client: controllertest.Strict(t, api)}
	intents := []volumesv1alpha1.VolumeAttachmentIntent{
		{Status: volumesv1alpha1.VolumeAttachmentIntentStatus{ClaimUID: "uid"}}}
	cached, changed := readClaim(t, api), readClaim(t, api)
	changed.Finalizers = []string{"example.com/snapshot"}
	if err := api.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := c.protect(t.Context(), cached, intents); err != nil {
		t.Errorf("protecting a claim that was changed meanwhile: error %v, want none: its event follows", err)
	}
	if got := readClaim(t, api).Finalizers; !slices.Equal(got, changed.Finalizers) {
		t.Errorf("finalizers of claim c: %q, want %q, which came meanwhile", got, changed.Finalizers)
	}
	if err := c.expanded(t.Context(), cached, intents); err != nil {
		t.Errorf("reporting on a claim that was changed meanwhile: error %v, want none: its event follows", err)
	}
	if got := readClaim(t, api).Status; len(got.AllocatedResourceStatuses) == 0 {
		t.Errorf("status of claim c: %+v, want that it is not written by what is out of date", got)
	}
	if err := c.expanded(t.Context(), readClaim(t, api), intents); err != nil {
		t.Fatal(err)
	}
	if got := readClaim(t, api).Status; len(got.AllocatedResourceStatuses) > 0 {
		t.Errorf("status of claim c: %+v, want that nothing waits for the node any more", got)
	}
}

func TestTheVolumeOfAnotherClaimOfTheNameExpandsNone(t *testing.T) {
	objects := newClaim()
	objects[1].(*corev1.PersistentVolume).Spec.ClaimRef.UID = "earlier"
	api := serving(objects)
	c := &Controller{Client: controllertest.Strict(t, api)}
	err := c.expanded(t.Context(), readClaim(t, api), make([]volumesv1alpha1.VolumeAttachmentIntent, 1))
	if got := readClaim(t, api).Status; err != nil || len(got.AllocatedResourceStatuses) == 0 {
		t.Errorf("status of claim c: %+v, error %v; want it unchanged: the volume is another claim's", got, err)
	}
}
