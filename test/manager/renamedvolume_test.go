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
)

// TestAnAttachmentWhosePersistentVolumeGotAnotherHandleIsNotDeletedUnderAMount: a PersistentVolume is created again
// under its name with another handle, before its attachment was attached. From then on the attacher carries that
// attachment out for the other handle, whatever volume it was created for.
func TestAnAttachmentWhosePersistentVolumeGotAnotherHandleIsNotDeletedUnderAMount(t *testing.T) {
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			_, stop := w.manage(t, managerOptions{attachMode: mode})
			w.managedNode(t, "n")
			o := volumeOptions{}
			claim := newClaim("data", o)
			w.create(t, claim)
			wrong := newVolume(claim, o)
			wrong.Spec.CSI.VolumeHandle = "wrong"
			w.create(t, wrong)
			w.bind(t, claim)
			w.attacher.set("pv-data", "", true)
			earlier := w.intent(t, "earlier", "n", "data")
			va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{
				Name: volume.AttachmentName(driverName, "wrong", "n"),
			}}
			until(t, w, va, "it exists", exists)
			stop()
			w.vanishes(t, "pv-data")
			right := newVolume(claim, o)
			w.create(t, right)
			later := w.intent(t, "later", "n", "data")
			w.attacher.setDriver(func(a *storagev1.VolumeAttachment, publish bool) {
				state := stateOf("n")
				if publish || w.client.Get(t.Context(), client.ObjectKeyFromObject(state), state) != nil {
					return
				}
				for _, v := range state.Status.Volumes {
					if v.InUse && v.VolumeName == uniqueName("data") {
						t.Errorf("attachment %s of PersistentVolume pv-data is unpublished while node n uses %s (%s), "+
							"want it published", a.Name, v.VolumeName, v.AttachmentUID)
					}
				}
			})
			w.attacher.set("pv-data", "", false)
			until(t, w, va, "it is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
			w.manage(t, managerOptions{attachMode: mode})
			gone(t, w, va)
			until(t, w, later, "the later intent is Ready", isReady)
			w.delete(t, earlier)
			gone(t, w, earlier)
			gone(t, w, va)
			until(t, w, later, "the later intent is Ready", isReady)
			until(t, w, stateOf("n"), "the volume is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
				for _, v := range s.Status.Volumes {
					if v.InUse && v.VolumeName == uniqueName("data") {
						return true
					}
				}
				return false
			})
			if e := entryIn(w.stateNow(t, "n"), "data"); e.AttachmentName == "" || e.AttachmentName == va.Name {
				t.Errorf("entry of volume data: %s; want it to name another attachment than %s", dump(e), va.Name)
			}
		})
	}
}

func (w *world) stateNow(t *testing.T, node string) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	state := stateOf(node)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(state), state); err != nil {
		t.Fatal(err)
	}
	return state
}

