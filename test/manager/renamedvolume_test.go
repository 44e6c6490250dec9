/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Here a PersistentVolume, pv-data, is created again under its name with another handle. An attacher carries an
// attachment out by the PersistentVolume that it names, whatever volume the attachment was created for.

// withHandle makes claim data and pv-data with this handle, bound to each other.
func (w *world) withHandle(t *testing.T, handle string) {
	t.Helper()
	claim := newClaim("data", volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.CSI.VolumeHandle = handle
	w.create(t, pv)
	w.bind(t, claim)
}

// getsHandle deletes pv-data and creates it again with this handle.
func (w *world) getsHandle(t *testing.T, handle string) {
	t.Helper()
	claim := newClaim("data", volumeOptions{})
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	w.vanishes(t, "pv-data")
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.CSI.VolumeHandle = handle
	w.create(t, pv)
}

func pinned(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.Status.UniqueVolumeName != "" }

func attachmentForHandle(handle string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, handle, "n")}}
}

// neverUnpublishedInUse fails the test if the driver is to unpublish a volume of this claim while node n uses it.
func (w *world) neverUnpublishedInUse(t *testing.T, claim string) {
	w.attacher.setDriver(func(va *storagev1.VolumeAttachment, publish bool) {
		state := stateOf("n")
		if publish || w.client.Get(t.Context(), client.ObjectKeyFromObject(state), state) != nil {
			return
		}
		if use := handshake.NodeOf(state, uniqueName(claim)).Use; use.InUse {
			t.Errorf("attachment %s of PersistentVolume %s is unpublished while node n uses volume %s by attachment %s, "+
				"want it published", va.Name, *va.Spec.Source.PersistentVolumeName, uniqueName(claim), use.UID)
		}
	})
}

// TestWhatWasCreatedForAnEarlierHandleIsOfNoUseForTheNext: the attacher carries the attachment out after that, while no
// manager runs. It was created for the earlier volume, whose key deletes it.
func TestWhatWasCreatedForAnEarlierHandleIsOfNoUseForTheNext(t *testing.T) {
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			_, stop := w.manage(t, managerOptions{attachMode: mode})
			w.managedNode(t, "n")
			w.withHandle(t, "wrong")
			w.attacher.set("pv-data", "", true)
			earlier := w.intent(t, "earlier", "n", "data")
			va := attachmentForHandle("wrong")
			until(t, w, va, "it exists", exists)
			until(t, w, earlier, "it is pinned to the volume", pinned)
			stop()
			w.getsHandle(t, "vol-data")
			later := w.intent(t, "later", "n", "data")
			w.neverUnpublishedInUse(t, "data")
			w.attacher.set("pv-data", "", false)
			until(t, w, va, "it is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
			w.manage(t, managerOptions{attachMode: mode})
			gone(t, w, va)
			until(t, w, later, "the later intent is Ready", isReady)
			e := w.entryState(t, "n", "data", volumesv1alpha1.AttachmentAttached)
			if want := attachmentForHandle("vol-data").Name; e.AttachmentName != want {
				t.Errorf("entry of volume data names attachment %s, want %s", e.AttachmentName, want)
			}
			w.delete(t, earlier)
			gone(t, w, earlier)
		})
	}
}

// TestAnAttachmentThatWouldDetachAVolumeInUseStays: the volume of the later handle is there already, through another
// PersistentVolume.
func TestAnAttachmentThatWouldDetachAVolumeInUseStays(t *testing.T) {
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			_, stop := w.manage(t, managerOptions{attachMode: mode})
			w.managedNode(t, "n")
			w.volume(t, "used", volumeOptions{})
			user := w.intent(t, "used", "n", "used")
			until(t, w, user, "it is Ready", isReady)
			w.withHandle(t, "wrong")
			w.attacher.set("pv-data", "there is no such volume", false)
			earlier := w.intent(t, "earlier", "n", "data")
			until(t, w, earlier, "it is pinned to the volume", pinned)
			va := attachmentForHandle("wrong")
			until(t, w, va, "the attacher has begun", func(va *storagev1.VolumeAttachment) bool {
				return va.Status.AttachError != nil
			})
			stop()
			w.getsHandle(t, "vol-used")
			w.neverUnpublishedInUse(t, "used")
			w.manage(t, managerOptions{attachMode: mode})
			until(t, w, stateOf("n"), "it is Detaching", func(s *volumesv1alpha1.NodeVolumeState) bool {
				return handshake.NodeOf(s, volume.UniqueName(driverName, "wrong")).Entry.State == handshake.Detaching
			})
			w.reconcileNode(t, "n")
			until(t, w, va, "it stays", exists)
			w.delete(t, user)
			gone(t, w, user)
			gone(t, w, va)
			gone(t, w, attachmentForHandle("vol-used"))
		})
	}
}
