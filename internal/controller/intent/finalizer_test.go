/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// TestAnIntentGetsItsFinalizerOnceItsClaimCannotGo: the finalizer is the agent's leave to mount.
func TestAnIntentGetsItsFinalizerOnceItsClaimCannotGo(t *testing.T) {
	type intent = volumesv1alpha1.VolumeAttachmentIntent
	claim := func(uid types.UID, finalizers ...string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: uid, Finalizers: finalizers}}
	}
	pinned := func(i *intent) { i.Status.ClaimUID = "pinned" }
	onlyAttached := func(i *intent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached }
	force := func(i *intent) {
		i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Minute}}
	}
	byKubelet := func(i *intent) { i.Spec.Publisher = volumesv1alpha1.PublisherKubelet; onlyAttached(i) }
	for _, c := range []struct {
		name  string
		is    []func(*intent)
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		{"it is not pinned yet, and there is no claim", nil, nil, true},
		{"its claim is protected", []func(*intent){pinned}, claim("pinned", volumesv1alpha1.ClaimFinalizer), true},
		{"its claim is not protected", []func(*intent){pinned}, claim("pinned", "kubernetes.io/pvc-protection"), false},
		{"its claim is gone", []func(*intent){pinned}, nil, false},
		{"another claim of the name is protected", []func(*intent){pinned}, claim("other", volumesv1alpha1.ClaimFinalizer), false},
		{"it wants no more than Attached", []func(*intent){pinned, onlyAttached}, claim("pinned", volumesv1alpha1.ClaimFinalizer), false},
		{"it comes to have a policy, and its claim is protected", []func(*intent){pinned, onlyAttached, force}, claim("pinned", volumesv1alpha1.ClaimFinalizer), true},
		{"it comes to have a policy, and its claim is not protected", []func(*intent){pinned, onlyAttached, force}, claim("pinned"), false},
		{"the kubelet publishes", []func(*intent){pinned, byKubelet}, claim("pinned"), false},
		{"the kubelet publishes and it comes to have a policy", []func(*intent){pinned, byKubelet, force}, claim("pinned"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := volumesv1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			i := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
			for _, is := range c.is {
				is(i)
			}
			controller := &Controller{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(i).Build()}
			if err := controller.Client.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
				t.Fatal(err)
			}
			wrote, err := controller.ensureFinalizer(t.Context(), i, c.claim)
			if err != nil {
				t.Fatal(err)
			}
			if err := controller.Client.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
				t.Fatal(err)
			}
			if got := status.Finalized(i); got != c.want || wrote != c.want {
				t.Errorf("finalizer: %t, written: %t, want %t", got, wrote, c.want)
			}
			if again, err := controller.ensureFinalizer(t.Context(), i, c.claim); again || err != nil {
				t.Errorf("again: %t, %v", again, err)
			}
		})
	}
}
