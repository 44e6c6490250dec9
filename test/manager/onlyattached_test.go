/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/status"
)

// TestAttachedIntents runs every scenario in both modes, one manager at a time.
func TestAttachedIntents(t *testing.T) {
	w := newWorld(t)
	for mode, name := range map[controller.AttachMode]string{controller.Coexist: "beside", controller.Replace: "alone"} {
		o := managerOptions{attachMode: mode}
		for _, s := range []struct {
			name     string
			scenario func(*testing.T, *world, managerOptions, string)
		}{
			{"the intent is removed at once, and the volume is detached without a write to the intent",
				anIntentIsRemovedAtOnceAndItsVolumeDetached},
			{"a volume whose intent was deleted while no manager ran is detached at the next start",
				aVolumeWhoseIntentWasDeletedWhileNoManagerRanIsDetached},
			{"a volume in use stays attached without its intent", aVolumeInUseStaysAttachedWithoutItsIntent},
			{"the release of a lowered intent is waited for", theReleaseOfALoweredIntentIsWaitedFor},
			{"when the intent is raised, the claim is protected and the intent gets the finalizer",
				aRaisedIntentGetsItsFinalizer},
			{"the claim may be removed, and the volume stays attached until its intent is deleted",
				aClaimOfAnAttachedIntentMayBeRemoved},
			{"an intent raised after the deletion of its claim is not published, and reports it",
				anIntentRaisedAfterTheDeletionOfItsClaimIsNotPublished},
		} {
			t.Run(string(mode)+", "+s.name, func(t *testing.T) { s.scenario(t, w, o, name) })
		}
	}
}

// setOnlyAttached makes an intent one for Attached, to which the admission policy gives no finalizer.
func setOnlyAttached(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.Spec.DesiredState, intent.Finalizers = volumesv1alpha1.DesiredAttached, nil
}

// attachOnly has a volume attached for an intent that wants no more.
func (w *world) attachOnly(t *testing.T, name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	w.volume(t, name, volumeOptions{})
	intent := newIntent(name, node, name)
	setOnlyAttached(intent)
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	return intent
}

// keepsAttached: what came later has gone through, so the volume has been reconciled, and it is attached as before.
func (w *world) keepsAttached(t *testing.T, name string) {
	t.Helper()
	w.attachAndRelease(t, name+"-marker", name)
	w.entryState(t, name, name, volumesv1alpha1.AttachmentAttached)
	w.stillThere(t, name, name)
}

func (w *world) isDetached(t *testing.T, name string) {
	t.Helper()
	gone(t, w, attachmentOf(name, name))
	w.entryState(t, name, name, "")
}

func anIntentIsRemovedAtOnceAndItsVolumeDetached(t *testing.T, w *world, o managerOptions, name string) {
	name += "-gone"
	requests, stop := w.manage(t, o)
	defer stop()
	w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	if status.Finalized(intent) {
		t.Errorf("finalizers of intent %s, which only attaches: %q; want none of Hawser", intent.Name, intent.Finalizers)
	}
	requests.reset()
	w.delete(t, intent)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(intent), intent); !apierrors.IsNotFound(err) {
		t.Errorf("reading intent %s, which was deleted: error %v, want not found; %s", intent.Name, err, dump(intent))
	}
	w.isDetached(t, name)
	for _, what := range []string{"PATCH volumeattachmentintents", "PUT volumeattachmentintents/status"} {
		if n := requests.count(what); n > 0 {
			t.Errorf("%d times %s for intent %s, which is gone; want none", n, what, intent.Name)
		}
	}
}

func aVolumeWhoseIntentWasDeletedWhileNoManagerRanIsDetached(t *testing.T, w *world, o managerOptions, name string) {
	name += "-away"
	_, stop := w.manage(t, o)
	w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	stop()
	w.delete(t, intent)
	gone(t, w, intent)
	until(t, w, attachmentOf(name, name), "nobody detaches yet", held)
	_, stop = w.manage(t, o)
	defer stop()
	w.isDetached(t, name)
}

// aVolumeInUseStaysAttachedWithoutItsIntent: by the kubelet, which asks no controller.
func aVolumeInUseStaysAttachedWithoutItsIntent(t *testing.T, w *world, o managerOptions, name string) {
	name += "-used"
	_, stop := w.manage(t, o)
	defer stop()
	a := w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	a.set(func() { a.mounted = map[string]bool{uniqueName(name): true} })
	until(t, w, stateOf(name), "the volume is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1
	})
	w.delete(t, intent)
	gone(t, w, intent)
	w.keepsAttached(t, name)
	a.set(func() { a.mounted = nil })
	w.isDetached(t, name)
}

// theReleaseOfALoweredIntentIsWaitedFor: its agent cannot release the volume, whatever is wanted by now.
func theReleaseOfALoweredIntentIsWaitedFor(t *testing.T, w *world, o managerOptions, name string) {
	name += "-lowered"
	_, stop := w.manage(t, o)
	defer stop()
	a := w.managedNode(t, name)
	w.volume(t, name, volumeOptions{})
	intent := w.intent(t, name, name, name)
	until(t, w, intent, "the intent is Ready", isReady)
	w.volume(t, name+"-marker", volumeOptions{})
	a.set(func() { a.hangs = true })
	// As long as the agent is at it the intent need not say so.
	w.changeStatus(t, intent, func() {
		meta.RemoveStatusCondition(&intent.Status.Conditions, volumesv1alpha1.ConditionStaged)
		meta.RemoveStatusCondition(&intent.Status.Conditions, volumesv1alpha1.ConditionPublished)
	})
	w.change(t, intent, func() { intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached })
	w.delete(t, intent)
	w.attached(t, w.intent(t, name+"-marker", name, name+"-marker"))
	until(t, w, intent, "the intent stays", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return exists(i) && i.DeletionTimestamp != nil && status.Finalized(i)
	})
	until(t, w, attachmentOf(name, name), "the attachment stays and is held", held)
	a.set(func() { a.hangs = false })
	gone(t, w, intent)
	gone(t, w, attachmentOf(name, name))
}

// aRaisedIntentGetsItsFinalizer also here, where no admission policy is in force.
func aRaisedIntentGetsItsFinalizer(t *testing.T, w *world, o managerOptions, name string) {
	name += "-raised"
	_, stop := w.manage(t, o)
	defer stop()
	w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	claim := newClaim(name, volumeOptions{})
	if until(t, w, claim, "the claim is there", exists); protected(claim) {
		t.Errorf("finalizers of claim %s of an intent that only attaches: %q; want none of Hawser", claim.Name,
			claim.Finalizers)
	}
	w.change(t, intent, func() { intent.Spec.DesiredState = volumesv1alpha1.DesiredPublished })
	until(t, w, intent, "the intent has its finalizer", status.Finalized)
	if until(t, w, claim, "the claim is there", exists); !protected(claim) {
		t.Errorf("finalizers of claim %s: %q; want that of Hawser, as its intent has its finalizer", claim.Name,
			claim.Finalizers)
	}
	until(t, w, intent, "the intent is published", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return status.Finalized(i) && isReady(i) && i.Status.ObservedGeneration == i.Generation
	})
	w.releaseAndDetach(t, intent, name)
}

// aClaimOfAnAttachedIntentMayBeRemoved: the VolumeAttachment guards the volume.
func aClaimOfAnAttachedIntentMayBeRemoved(t *testing.T, w *world, o managerOptions, name string) {
	name += "-claim"
	requests, stop := w.manage(t, o)
	defer stop()
	w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	if n := requests.count("PATCH persistentvolumeclaims"); n > 0 {
		t.Errorf("%d writes to claim %s of an intent that only attaches, want none", n, name)
	}
	claim := newClaim(name, volumeOptions{})
	w.delete(t, claim)
	gone(t, w, claim)
	message := w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
		volumesv1alpha1.ReasonClaimNotFound)
	if !strings.Contains(message, "default/"+name) || !strings.Contains(message, "pv-"+name) {
		t.Errorf("message of intent %s: %q; want claim default/%s and volume pv-%s", intent.Name, message, name, name)
	}
	w.keepsAttached(t, name)
	w.delete(t, intent)
	w.isDetached(t, name)
}

// anIntentRaisedAfterTheDeletionOfItsClaimIsNotPublished: nothing makes its claim wait for it any more.
func anIntentRaisedAfterTheDeletionOfItsClaimIsNotPublished(t *testing.T, w *world, o managerOptions, name string) {
	name += "-late"
	_, stop := w.manage(t, o)
	defer stop()
	w.managedNode(t, name)
	intent := w.attachOnly(t, name, name)
	claim := newClaim(name, volumeOptions{})
	until(t, w, claim, "the claim is there", exists)
	w.change(t, claim, func() { claim.Finalizers = append(claim.Finalizers, "example.com/other") })
	w.delete(t, claim)
	message := w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue,
		volumesv1alpha1.ReasonClaimDeleting)
	if !strings.Contains(message, "does not wait for this intent") {
		t.Errorf("message of intent %s: %q; want that the deletion of the claim does not wait for it", intent.Name, message)
	}
	w.change(t, intent, func() { intent.Spec.DesiredState = volumesv1alpha1.DesiredPublished })
	message = w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
		volumesv1alpha1.ReasonClaimDeleting)
	if !strings.Contains(message, "not be mounted") || !strings.Contains(message, "pv-"+name) {
		t.Errorf("message of intent %s: %q; want that volume pv-%s is not to be mounted", intent.Name, message, name)
	}
	w.keepsAttached(t, name)
	if until(t, w, intent, "the intent is there", exists); status.Finalized(intent) ||
		status.AgentConditionsPresent(intent) {
		t.Errorf("intent %s, whose claim is being deleted: %s; want no finalizer and no conditions of the agent", intent.Name,
			dump(intent))
	}
	w.change(t, claim, func() { claim.Finalizers = nil })
	gone(t, w, claim)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonClaimNotFound)
	w.delete(t, intent)
	w.isDetached(t, name)
}
