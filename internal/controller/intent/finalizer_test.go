/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/status"
)

// TestAnIntentGetsItsFinalizerOnceItsClaimCannotGo: the finalizer is the agent's leave to mount.
func TestAnIntentGetsItsFinalizerOnceItsClaimCannotGo(t *testing.T) {
	type intent = volumesv1alpha1.VolumeAttachmentIntent
	claim := func(uid types.UID, finalizers ...string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: uid, Finalizers: finalizers},
		}
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
		{"its claim is not protected", []func(*intent){pinned}, claim("pinned", "kubernetes.io/pvc-protection"),
			guarded, false},
		{"its claim is being deleted", []func(*intent){pinned}, leaving(guarded.DeepCopy()),
			leaving(guarded.DeepCopy()), false},
		{"its claim is being deleted, and the cache does not show it yet", []func(*intent){pinned}, guarded,
			leaving(guarded.DeepCopy()), false},
		{"its claim is gone", []func(*intent){pinned}, nil, nil, false},
		{"its claim is gone, and the cache does not show it yet", []func(*intent){pinned}, guarded, nil, false},
		{"another claim of the name is protected", []func(*intent){pinned}, claim("other", volumesv1alpha1.ClaimFinalizer),
			claim("other", volumesv1alpha1.ClaimFinalizer), false},
		{"another claim of the name is protected, and the cache does not show it yet", []func(*intent){pinned}, guarded,
			claim("other", volumesv1alpha1.ClaimFinalizer), false},
		{"it wants no more than Attached", []func(*intent){pinned, onlyAttached}, guarded, guarded, false},
		{"it comes to have a policy, and its claim is protected", []func(*intent){pinned, onlyAttached, force}, guarded,
			guarded, true},
		{"it comes to have a policy, and its claim is not protected", []func(*intent){pinned, onlyAttached, force},
			claim("pinned"), claim("pinned"), false},
		{"the kubelet publishes", []func(*intent){pinned, byKubelet}, claim("pinned"), claim("pinned"), false},
		{"the kubelet publishes and it comes to have a policy", []func(*intent){pinned, byKubelet, force}, claim("pinned"),
			claim("pinned"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
			for _, is := range c.is {
				is(i)
			}
			controller := over(t, i, c.claim, c.live)
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
				t.Errorf("finalizer of intent i is written: %t, want %t", wrote, c.want)
			}
			if ensure() {
				t.Error("finalizer of intent i was written again, want one write")
			}
			if got := status.Finalized(i); got != c.want {
				t.Errorf("intent i has the release finalizer: %t, want %t", got, c.want)
			}
		})
	}
}

func TestAFinalizerThatCannotBeWrittenIsTriedAgainUnlessTheIntentHasChanged(t *testing.T) {
	guarded := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "c", UID: "pinned", Finalizers: []string{volumesv1alpha1.ClaimFinalizer},
	}}
	down := errors.New("the API server is down")
	conflict := apierrors.NewConflict(schema.GroupResource{}, "i", errors.New("changed"))
	for _, c := range []struct {
		name        string
		read, write error
		// fails: the pass is tried again.
		fails bool
	}{
		{"the claim cannot be read", down, nil, true},
		{"the intent cannot be written", nil, down, true},
		{"the intent has changed meanwhile, which comes here by itself", nil, conflict, false},
		{"the intent is gone", nil, apierrors.NewNotFound(schema.GroupResource{}, "i"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
			i.Status.ClaimUID = "pinned"
			controller := over(t, i, guarded, guarded)
			controller.Client = interceptor.NewClient(controller.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return c.write
				},
			})
			controller.Reader = interceptor.NewClient(controller.Reader.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if c.read != nil {
						return c.read
					}
					return w.Get(ctx, key, o, opts...)
				},
			})
			wrote, err := controller.ensureFinalizer(t.Context(), i, guarded)
			if (err != nil) != c.fails || wrote && c.read != nil {
				t.Errorf("finalizer of intent i: written %t, error %v; want an error: %t", wrote, err, c.fails)
			}
			if status.Finalized(i) {
				t.Errorf("finalizers of the cached intent i: %v, want it unchanged", i.Finalizers)
			}
			i.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
			if err := controller.abandon(t.Context(), i); (err != nil) != (c.fails && c.write != nil) {
				t.Errorf("releasing intent i: error %v, want one: %t", err, c.fails && c.write != nil)
			}
		})
	}
}

func TestADeletedIntentIsReleasedAtOnceOnlyIfItWasNeverPinned(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*volumesv1alpha1.VolumeAttachmentIntent)
		stale  bool
		goes   bool
	}{
		{"never pinned", func(*volumesv1alpha1.VolumeAttachmentIntent) {}, false, true},
		{"pinned to a volume", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Status.UniqueVolumeName = "v"
		}, false, false},
		{"without our finalizer", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Finalizers = i.Finalizers[:1]
		}, false, false},
		{"pinned to a volume, and the cache does not show it yet",
			func(*volumesv1alpha1.VolumeAttachmentIntent) {}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := metav1.Now()
			i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "i", DeletionTimestamp: &now,
				Finalizers: []string{"others/keep", volumesv1alpha1.ReleaseFinalizer},
			}}
			c.change(i)
			controller := over(t, i, nil, nil)
			key, live := client.ObjectKeyFromObject(i), &volumesv1alpha1.VolumeAttachmentIntent{}
			if err := controller.Client.Get(t.Context(), key, i); err != nil {
				t.Fatal(err)
			}
			if c.stale {
				pinned := i.DeepCopy()
				pinned.Status.UniqueVolumeName = "v"
				if err := controller.Client.Update(t.Context(), pinned); err != nil {
					t.Fatal(err)
				}
			}
			before := status.Finalized(i)
			if err := controller.abandon(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			if err := controller.Client.Get(t.Context(), key, live); err != nil {
				t.Fatal(err)
			}
			if !c.goes && !c.stale && live.ResourceVersion != i.ResourceVersion {
				t.Errorf("version of intent i: %s, want it not written: %s", live.ResourceVersion, i.ResourceVersion)
			}
			if goes := before && !status.Finalized(live); goes != c.goes {
				t.Errorf("intent i lost the release finalizer: %t, want %t", goes, c.goes)
			}
			if status.Finalized(i) != before {
				t.Errorf("finalizers of the cached intent i: %v, want it unchanged", i.Finalizers)
			}
		})
	}
}

// over makes a controller over an intent and, where there is one, its claim as the cache has it; only live reads find
// the claim as it is.
func over(
	t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, cached, live *corev1.PersistentVolumeClaim,
) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(volumesv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cache, reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(intent),
		fake.NewClientBuilder().WithScheme(scheme)
	if cached != nil {
		cache.WithObjects(cached.DeepCopy())
	}
	if live != nil {
		reader.WithObjects(live.DeepCopy())
	}
	return &Controller{Client: controllertest.Strict(t, cache.Build()), Reader: reader.Build()}
}
