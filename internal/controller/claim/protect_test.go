/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/test/apiserver"
)

// upstreams is Kubernetes' own finalizer, which its API server puts on every claim. Nothing takes it off here.
const upstreams = "kubernetes.io/pvc-protection"

// bound makes a claim as it is once it is bound.
func bound(t *testing.T, c client.Client, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	if err := c.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase = corev1.ClaimBound
	if err := c.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestProtect walks claims through what may come to them, on a real API server.
func TestProtect(t *testing.T) {
	_, c := apiserver.Start(t)
	controller := &Controller{Client: controllertest.Strict(t, c)}
	user := func(claim *corev1.PersistentVolumeClaim, leaving bool) []volumesv1alpha1.VolumeAttachmentIntent {
		i := volumesv1alpha1.VolumeAttachmentIntent{Status: volumesv1alpha1.VolumeAttachmentIntentStatus{ClaimUID: claim.UID}}
		if leaving {
			i.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return []volumesv1alpha1.VolumeAttachmentIntent{i}
	}
	// protect what was read, and read again what came of it.
	protect := func(t *testing.T, claim *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent) {
		t.Helper()
		if err := controller.protect(t.Context(), claim, intents); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatal(err)
		}
	}
	carries := func(t *testing.T, claim *corev1.PersistentVolumeClaim, want ...string) {
		t.Helper()
		if !slices.Equal(claim.Finalizers, want) {
			t.Errorf("finalizers of claim %s: %q, want %q", claim.Name, claim.Finalizers, want)
		}
	}
	remove := func(t *testing.T, claim *corev1.PersistentVolumeClaim) {
		t.Helper()
		if err := c.Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatalf("reading claim %s, which was deleted with a finalizer: error %v, want it there", claim.Name, err)
		}
	}

	t.Run("it is set once and stays while intents come and go", func(t *testing.T) {
		claim := bound(t, c, "stays")
		protect(t, claim, nil)
		carries(t, claim, upstreams)
		protect(t, claim, user(claim, true))
		carries(t, claim, upstreams)
		protect(t, claim, user(claim, false))
		carries(t, claim, upstreams, volumesv1alpha1.ClaimFinalizer)
		version := claim.ResourceVersion
		for _, intents := range [][]volumesv1alpha1.VolumeAttachmentIntent{user(claim, true), nil, user(claim, false), nil} {
			protect(t, claim, intents)
		}
		if claim.ResourceVersion != version {
			t.Errorf("version of claim %s: %s, want it unchanged: %s", claim.Name, claim.ResourceVersion, version)
		}
	})
	t.Run("the mark comes with the finalizer, and goes with the last intent where a label has deletions refused",
		func(t *testing.T) {
			plain, asking := bound(t, c, "plain"), bound(t, c, "asking")
			before := asking.DeepCopy()
			asking.Labels = map[string]string{volumesv1alpha1.RefuseDeletionLabel: "true"}
			if err := c.Patch(t.Context(), asking, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				what          string
				intents       func(*corev1.PersistentVolumeClaim) []volumesv1alpha1.VolumeAttachmentIntent
				plain, asking bool
			}{
				{"an intent", func(c *corev1.PersistentVolumeClaim) []volumesv1alpha1.VolumeAttachmentIntent {
					return user(c, false)
				}, true, true},
				{"one that leaves", func(c *corev1.PersistentVolumeClaim) []volumesv1alpha1.VolumeAttachmentIntent {
					return user(c, true)
				}, true, true},
				{"none", func(*corev1.PersistentVolumeClaim) []volumesv1alpha1.VolumeAttachmentIntent { return nil }, true, false},
				{"another one", func(c *corev1.PersistentVolumeClaim) []volumesv1alpha1.VolumeAttachmentIntent {
					return user(c, false)
				}, true, true},
			} {
				for claim, want := range map[*corev1.PersistentVolumeClaim]bool{plain: step.plain, asking: step.asking} {
					protect(t, claim, step.intents(claim))
					if got := marked(claim); got != want {
						t.Errorf("claim %s with %s: marked %t, want %t", claim.Name, step.what, got, want)
					}
				}
			}
		})
	t.Run("a claim that is deleted waits for its intents, and then loses ours alone", func(t *testing.T) {
		claim := bound(t, c, "waits")
		protect(t, claim, user(claim, false))
		remove(t, claim)
		for _, intents := range [][]volumesv1alpha1.VolumeAttachmentIntent{user(claim, false), user(claim, true)} {
			protect(t, claim, intents)
			carries(t, claim, upstreams, volumesv1alpha1.ClaimFinalizer)
		}
		protect(t, claim, nil)
		carries(t, claim, upstreams)
		// An intent that comes too late does not hold it any more.
		protect(t, claim, user(claim, false))
		carries(t, claim, upstreams)
	})
	t.Run("a claim that is deleted waits for an intent that has never resolved until that will not", func(t *testing.T) {
		claim := bound(t, c, "unresolved")
		protect(t, claim, user(claim, false))
		remove(t, claim)
		protect(t, claim, []volumesv1alpha1.VolumeAttachmentIntent{{}})
		carries(t, claim, upstreams, volumesv1alpha1.ClaimFinalizer)
		protect(t, claim, []volumesv1alpha1.VolumeAttachmentIntent{turnedAway(volumesv1alpha1.VolumeAttachmentIntent{})})
		carries(t, claim, upstreams)
	})
	t.Run("a claim that has lost its volume goes when it is deleted", func(t *testing.T) {
		claim := bound(t, c, "lost")
		protect(t, claim, user(claim, false))
		claim.Status.Phase = corev1.ClaimLost
		if err := c.Status().Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		protect(t, claim, []volumesv1alpha1.VolumeAttachmentIntent{{}})
		carries(t, claim, upstreams, volumesv1alpha1.ClaimFinalizer)
		remove(t, claim)
		protect(t, claim, []volumesv1alpha1.VolumeAttachmentIntent{{}})
		carries(t, claim, upstreams)
	})
	t.Run("what was decided on an outdated claim has no effect", func(t *testing.T) {
		claim := bound(t, c, "outdated")
		outdated := claim.DeepCopy()
		claim.Annotations = map[string]string{"example.com/written": "meanwhile"}
		if err := c.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		protect(t, outdated, user(claim, false))
		carries(t, outdated, upstreams)
	})
	t.Run("a claim that is gone meanwhile is no error", func(t *testing.T) {
		claim := bound(t, c, "gone")
		seen := claim.DeepCopy()
		claim.Finalizers = nil
		if err := c.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if err := controller.protect(t.Context(), seen, user(seen, false)); err != nil {
			t.Error(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); !apierrors.IsNotFound(err) {
			t.Errorf("reading claim gone, which was deleted: error %v, want not found", err)
		}
	})
}
