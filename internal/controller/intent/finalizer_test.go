/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"errors"
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
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: uid, Finalizers: finalizers}}
	}
	leaving := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		now := metav1.Now()
		c.DeletionTimestamp = &now
		return c
	}
	guarded := claim("pinned", volumesv1alpha1.ClaimFinalizer)
	pinned := func(i *intent) { i.Status.ClaimUID = "pinned" }
	onlyAttached := func(i *intent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached }
	force := func(i *intent) {
		i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Minute}}
	}
	byKubelet := func(i *intent) { i.Spec.Publisher = volumesv1alpha1.PublisherKubelet; onlyAttached(i) }
	for _, c := range []struct {
		name string
		is   []func(*intent)
		// claim as the cache has it, and as it is.
		claim, live *corev1.PersistentVolumeClaim
		want        bool
	}{
		{"it is not pinned yet, and there is no claim", nil, nil, nil, true},
		{"its claim is protected", []func(*intent){pinned}, guarded, guarded, true},
		{"its claim is not protected", []func(*intent){pinned}, claim("pinned", "kubernetes.io/pvc-protection"), guarded, false},
		{"its claim is being deleted", []func(*intent){pinned}, leaving(guarded.DeepCopy()), leaving(guarded.DeepCopy()), false},
		{"its claim is being deleted, and the cache does not show it yet", []func(*intent){pinned}, guarded, leaving(guarded.DeepCopy()), false},
		{"its claim is gone", []func(*intent){pinned}, nil, nil, false},
		{"its claim is gone, and the cache does not show it yet", []func(*intent){pinned}, guarded, nil, false},
		{"another claim of the name is protected", []func(*intent){pinned}, claim("other", volumesv1alpha1.ClaimFinalizer), claim("other", volumesv1alpha1.ClaimFinalizer), false},
		{"another claim of the name is protected, and the cache does not show it yet", []func(*intent){pinned}, guarded, claim("other", volumesv1alpha1.ClaimFinalizer), false},
		{"it wants no more than Attached", []func(*intent){pinned, onlyAttached}, guarded, guarded, false},
		{"it comes to have a policy, and its claim is protected", []func(*intent){pinned, onlyAttached, force}, guarded, guarded, true},
		{"it comes to have a policy, and its claim is not protected", []func(*intent){pinned, onlyAttached, force}, claim("pinned"), claim("pinned"), false},
		{"the kubelet publishes", []func(*intent){pinned, byKubelet}, claim("pinned"), claim("pinned"), false},
		{"the kubelet publishes and it comes to have a policy", []func(*intent){pinned, byKubelet, force}, claim("pinned"), claim("pinned"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
			for _, is := range c.is {
				is(i)
			}
			controller := over(t, i, c.live)
			ensure := func() bool {
				t.Helper()
				if err := controller.Client.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
					t.Fatal(err)
				}
				wrote, err := controller.ensureFinalizer(t.Context(), i, c.claim)
				if err != nil {
					t.Fatal(err)
				}
				return wrote
			}
			if wrote := ensure(); wrote != c.want {
				t.Errorf("written: %t, want %t", wrote, c.want)
			}
			if ensure() {
				t.Error("written again")
			}
			if got := status.Finalized(i); got != c.want {
				t.Errorf("finalizer: %t, want %t", got, c.want)
			}
		})
	}
}

// over makes a controller over an intent and, where there is one, its claim.
func over(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, claim *corev1.PersistentVolumeClaim) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(volumesv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(intent)
	if claim != nil {
		builder = builder.WithObjects(claim)
	}
	c := builder.Build()
	return &Controller{Client: c, Reader: c}
}
