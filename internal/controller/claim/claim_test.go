/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestUse(t *testing.T) {
	now := metav1.Now()
	intent := func(pinned types.UID, publisher volumesv1alpha1.Publisher,
		deleting bool) volumesv1alpha1.VolumeAttachmentIntent {
		i := volumesv1alpha1.VolumeAttachmentIntent{}
		i.Status.ClaimUID, i.Spec.Publisher = pinned, publisher
		if deleting {
			i.DeletionTimestamp = &now
		}
		return i
	}
	const agent, kubelet = volumesv1alpha1.PublisherAgent, volumesv1alpha1.PublisherKubelet
	for _, c := range []struct {
		name     string
		phase    corev1.PersistentVolumeClaimPhase
		deleting bool
		intents  []volumesv1alpha1.VolumeAttachmentIntent
		want     use
	}{
		{"no intent", corev1.ClaimBound, false, nil, unused},
		{"an intent that is new", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("", agent, false)}, inUse},
		{"an intent for a claim that is not bound", corev1.ClaimPending, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("", agent, false)}, unused},
		{"an intent that may be about to be pinned to a claim that is being deleted", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("", agent, false)}, leaving},
		{"one of which it was written that it is not", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{turnedAway(intent("", agent, false))}, unused},
		{"one that had no volume before for another reason", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{unresolved(intent("", agent, false))}, leaving},
		{"one that was deleted before", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("", agent, true)}, unused},
		{"an intent that is pinned to a claim that is being deleted", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("this", agent, false)}, inUse},
		{"an intent that is pinned to an earlier claim of the name", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("other", agent, false)}, unused},
		{"an intent that wants no more than Attached", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{only(intent("this", agent, false))}, unused},
		{"one that does and has been staged", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{finalized(only(intent("this", agent, false)))}, inUse},
		{"one that does and is leaving, and has been staged", corev1.ClaimBound, true,
			[]volumesv1alpha1.VolumeAttachmentIntent{finalized(only(intent("this", agent, true)))}, leaving},
		{"one that does and one that wants more", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{only(intent("this", agent, false)), intent("this", agent, false)}, inUse},
		{"an intent that the kubelet publishes", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("this", kubelet, false)}, unused},
		{"an intent that is leaving", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("this", agent, true)}, leaving},
		{"one that is leaving and one that stays", corev1.ClaimBound, false,
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("this", agent, true), intent("this", agent, false)}, inUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{UID: "this"}, Status: corev1.PersistentVolumeClaimStatus{Phase: c.phase},
			}
			if c.deleting {
				claim.DeletionTimestamp = &now
			}
			if got := used(claim, c.intents); got != c.want {
				t.Errorf("use of claim %s: %d, want %d", claim.Name, got, c.want)
			}
		})
	}
}

// only makes an intent one that wants no more than Attached.
func only(i volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.VolumeAttachmentIntent {
	i.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	return i
}

// turnedAway makes an intent one that has no volume, because its claim is being deleted.
func turnedAway(i volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.VolumeAttachmentIntent {
	i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionResolved, Status: metav1.ConditionFalse,
		Reason: volumesv1alpha1.ReasonClaimDeleting}}
	return i
}

// unresolved makes an intent one that has no volume for another reason.
func unresolved(i volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.VolumeAttachmentIntent {
	i = turnedAway(i)
	i.Status.Conditions[0].Reason = volumesv1alpha1.ReasonAdmissionPolicyMissing
	return i
}

func finalized(i volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.VolumeAttachmentIntent {
	i.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	return i
}

func TestAnIntentThatBeginsToUseItsClaimEnqueuesIt(t *testing.T) {
	attached := only(volumesv1alpha1.VolumeAttachmentIntent{})
	raised := volumesv1alpha1.VolumeAttachmentIntent{}
	raised.Spec.DesiredState = volumesv1alpha1.DesiredStaged
	for _, c := range []struct {
		name    string
		was, is volumesv1alpha1.VolumeAttachmentIntent
		want    bool
	}{
		{"raised", attached, raised, true},
		{"raised further", raised, volumesv1alpha1.VolumeAttachmentIntent{}, false},
		{"lowered, and still to be released", finalized(raised), finalized(attached), false},
		{"given its finalizer", raised, finalized(raised), false},
		{"not to be pinned any more", raised, turnedAway(raised), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := intentUse.Update(event.UpdateEvent{ObjectOld: &c.was, ObjectNew: &c.is}); got != c.want {
				t.Errorf("update (%s) is let through: %t, want %t", c.name, got, c.want)
			}
		})
	}
}

func TestOurOwnFinalizerDoesNotEnqueueAClaim(t *testing.T) {
	before := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		UID: "this", ResourceVersion: "1", Finalizers: []string{"kubernetes.io/pvc-protection"},
	}}
	protected := before.DeepCopy()
	protected.ResourceVersion, protected.Finalizers = "2", append(protected.Finalizers, volumesv1alpha1.ClaimFinalizer)
	for _, c := range []struct {
		name string
		was  *corev1.PersistentVolumeClaim
		is   func(*corev1.PersistentVolumeClaim)
		want bool
		// comes: this is when it came to be protected, which intents may wait for.
		comes bool
	}{
		{"protected", before, func(*corev1.PersistentVolumeClaim) {}, false, true},
		{"protected and bound at once", before, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimBound
		}, true, true},
		{"protected and deleted at once", before, func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp = &metav1.Time{}
		}, true, true},
		{"protected, and free of another's protection", before, func(c *corev1.PersistentVolumeClaim) {
			c.Finalizers = c.Finalizers[1:]
		}, true, true},
		{"protected before", protected, func(*corev1.PersistentVolumeClaim) {}, true, false},
		{"not protected any more", protected, func(c *corev1.PersistentVolumeClaim) {
			c.Finalizers = c.Finalizers[:1]
		}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := protected.DeepCopy()
			c.is(is)
			if got := Changed.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: is}); got != c.want {
				t.Errorf("update (%s) is let through: %t, want %t", c.name, got, c.want)
			}
			if got := Protected.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: is}); got != c.comes {
				t.Errorf("update (%s) protects the claim: %t, want %t", c.name, got, c.comes)
			}
		})
	}
}

func TestAnIntentEnqueuesItsClaimOnlyWhereItMayMatter(t *testing.T) {
	const agent, kubelet = volumesv1alpha1.PublisherAgent, volumesv1alpha1.PublisherKubelet
	now := metav1.Now()
	guarded := func(c *corev1.PersistentVolumeClaim) {
		c.Finalizers = append(c.Finalizers, volumesv1alpha1.ClaimFinalizer)
	}
	leaves := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }
	grows := func(c *corev1.PersistentVolumeClaim) {
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimFileSystemResizePending},
		}
	}
	for _, c := range []struct {
		name      string
		publisher volumesv1alpha1.Publisher
		claim     []func(*corev1.PersistentVolumeClaim)
		want      bool
		// only: the answer for an intent that wants no more than Attached.
		only bool
	}{
		{"one that is not protected", agent, nil, true, false},
		{"one that is not and is being deleted", agent, []func(*corev1.PersistentVolumeClaim){leaves}, true, true},
		{"one that is", agent, []func(*corev1.PersistentVolumeClaim){guarded}, false, false},
		{"one that is and is being deleted", agent, []func(*corev1.PersistentVolumeClaim){guarded, leaves}, true, true},
		{"one that is and waits for a node to grow it", agent,
			[]func(*corev1.PersistentVolumeClaim){guarded, grows}, true, true},
		{"one whose volume the kubelet publishes", kubelet, nil, false, false},
		{"one whose volume the kubelet publishes and that waits for a node to grow it", kubelet,
			[]func(*corev1.PersistentVolumeClaim){grows}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", Finalizers: []string{"other"}},
			}
			for _, is := range c.claim {
				is(claim)
			}
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
			intent.Spec.Publisher = c.publisher
			intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "c"}
			controller := &Controller{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim).Build()}
			if got := controller.ofIntent(t.Context(), intent); len(got) > 0 != c.want {
				t.Errorf("claims that intent i wakes: %v, want some: %t", got, c.want)
			}
			intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
			if got := controller.ofIntent(t.Context(), intent); len(got) > 0 != c.only {
				t.Errorf("claims that intent i wakes, which wants no more than Attached: %v, want some: %t", got, c.only)
			}
			intent.Spec.Volume.PersistentVolumeClaim.ClaimName = "none"
			if got := controller.ofIntent(t.Context(), intent); len(got) > 0 {
				t.Errorf("claims that intent i wakes, whose claim does not exist: %v, want none", got)
			}
		})
	}
}
