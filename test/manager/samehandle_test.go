/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// Several PersistentVolumes may have one driver and handle: here first and second, which share this handle.
const sharedHandle = "share"

func attachmentOfShare(node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, sharedHandle, node)},
	}
}

// ofShare makes a claim that is bound to a PersistentVolume of the shared handle.
func (w *world) ofShare(t *testing.T, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	o := volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
	claim := newClaim(name, o)
	w.create(t, claim)
	pv := newVolume(claim, o)
	pv.Spec.CSI.VolumeHandle = sharedHandle
	w.create(t, pv)
	w.bind(t, claim)
	return claim
}

// vanishes removes a PersistentVolume although finalizers are on it.
func (w *world) vanishes(t *testing.T, name string) {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.delete(t, pv)
	if err := client.IgnoreNotFound(w.client.Patch(t.Context(), pv, client.RawPatch(
		"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
	))); err != nil {
		t.Fatalf("removing the finalizers of PersistentVolume %s: %v", name, err)
	}
}

// neverAttached has the attacher refuse the first PersistentVolume, as it does when that is being deleted: it puts no
// finalizer on the attachment. It returns that attachment.
func (w *world) neverAttached(t *testing.T, node string) *storagev1.VolumeAttachment {
	t.Helper()
	va := attachmentOfShare(node)
	until(t, w, va, "the attachment for the first PersistentVolume exists", exists)
	w.changeStatus(t, va, func() {
		va.Status.AttachError = &storagev1.VolumeError{
			Time: metav1.Now(), Message: `PersistentVolume "pv-first" is marked for deletion`,
		}
	})
	return va
}

func forVolume(name string) func(*storagev1.VolumeAttachment) bool {
	return func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && *va.Spec.Source.PersistentVolumeName == name && va.Status.Attached
	}
}

func TestANeverAttachedPersistentVolumeThatIsGoneKeepsNoOtherOfItsHandleAway(t *testing.T) {
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.manage(t, managerOptions{attachMode: mode})
			w.managedNode(t, "n")
			w.ofShare(t, "first")
			w.attacher.set("pv-first", "", true)
			first := w.intent(t, "first", "n", "first")
			va := w.neverAttached(t, "n")
			old := va.UID
			w.ofShare(t, "second")
			second := w.intent(t, "second", "n", "second")
			w.vanishes(t, "pv-first")
			w.attached(t, second)
			until(t, w, va, "it is for the second PersistentVolume", forVolume("pv-second"))
			if va.UID == old {
				t.Errorf("attachment %s still has UID %s, want another", va.Name, old)
			}
			w.delete(t, first)
			gone(t, w, first)
			w.attached(t, second)
			w.delete(t, second)
			gone(t, w, second)
			gone(t, w, attachmentOfShare("n"))
		})
	}
}

func TestAPodOfAnotherPersistentVolumeOfTheHandleKeepsNoAttachmentOfAGoneOne(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "n")
	w.ofShare(t, "first")
	w.attacher.set("pv-first", "", true)
	w.intent(t, "first", "n", "first")
	va := w.neverAttached(t, "n")
	w.ofShare(t, "second")
	w.pod(t, "second", "n", "second")
	second := w.intent(t, "second", "n", "second")
	w.vanishes(t, "pv-first")
	w.attached(t, second)
	until(t, w, va, "it is for the second PersistentVolume", forVolume("pv-second"))
}

// The first PersistentVolume is there, but no attacher attaches it. A pod that waits for it keeps its attachment.
func TestAPersistentVolumeThatNothingOnTheNodeNamesKeepsNoOtherOfItsHandleAway(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "n")
	w.ofShare(t, "first")
	w.attacher.set("pv-first", "", true)
	pod := w.pod(t, "first", "n", "first")
	va := attachmentOfShare("n")
	va.Spec = upstreamAttachment("", "first", "n").Spec
	w.create(t, va)
	old := va.UID
	w.ofShare(t, "second")
	second := w.intent(t, "second", "n", "second")
	until(t, w, va, "the attachment is held for the second PersistentVolume", held)
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching)
	if until(t, w, va, "it is still there", exists); va.UID != old || va.DeletionTimestamp != nil {
		t.Errorf("attachment %s that a pod waits for: UID %s, deleted at %v; want UID %s, not deleted", va.Name, va.UID,
			va.DeletionTimestamp, old)
	}
	w.kill(t, pod)
	w.attached(t, second)
	until(t, w, va, "it is for the second PersistentVolume", forVolume("pv-second"))
}

// The attacher begins between the decision and the delete: its change of the attachment voids the delete.
func TestAnAttacherThatBeginsMeanwhileKeepsItsAttachment(t *testing.T) {
	w := newWorld(t)
	g := newGate(func(what, _ string) bool { return what == "DELETE volumeattachments" })
	w.manage(t, managerOptions{transport: g.transport})
	w.node(t, "n")
	w.ofShare(t, "first")
	w.attacher.set("pv-first", "", true)
	w.intent(t, "first", "n", "first")
	va := w.neverAttached(t, "n")
	old := va.UID
	w.ofShare(t, "second")
	w.pod(t, "second", "n", "second")
	second := w.intent(t, "second", "n", "second")
	w.vanishes(t, "pv-first")
	<-g.held
	w.change(t, va, func() { va.Finalizers = []string{attacherFinalizer} })
	w.changeStatus(t, va, func() { va.Status.Attached = true })
	close(g.open)
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonDetaching)
	w.reconcileNode(t, "n")
	if until(t, w, va, "the attachment is there", exists); va.UID != old || va.DeletionTimestamp != nil {
		t.Errorf("attachment %s that was attached before it was deleted: UID %s, deleted at %v; want UID %s, not deleted",
			va.Name, va.UID, va.DeletionTimestamp, old)
	}
}

func TestAnIntentNamesThePersistentVolumeThatIsGoneAndTheFinalizersOfItsAttachment(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "n")
	w.ofShare(t, "first")
	w.attacher.set("pv-first", "no answer of the driver", false)
	w.intent(t, "first", "n", "first")
	until(t, w, attachmentOfShare("n"), "it fails", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.Status.AttachError != nil
	})
	w.ofShare(t, "second")
	second := w.intent(t, "second", "n", "second")
	w.vanishes(t, "pv-first")
	message := w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse)
	for _, want := range []string{"pv-first, which does not exist any more", attacherFinalizer} {
		if !strings.Contains(message, want) {
			t.Errorf("message of an intent that waits for another attachment: %q, want it to contain %q", message, want)
		}
	}
}

// The intent that the attachment was created for is gone. Nobody but its pod waits, and the hold keeps upstream from
// deleting the attachment.
func TestInCoexistAPodWaitsForNoAttachmentOfAGonePersistentVolume(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "n")
	w.ofShare(t, "first")
	w.attacher.set("pv-first", "", true)
	first := w.intent(t, "first", "n", "first")
	va := w.neverAttached(t, "n")
	w.ofShare(t, "second")
	w.pod(t, "second", "n", "second")
	w.vanishes(t, "pv-first")
	w.delete(t, first)
	gone(t, w, first)
	gone(t, w, va)
}
