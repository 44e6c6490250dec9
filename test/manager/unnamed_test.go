/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// TestAnUnconfirmedAttachmentIsDeletedWithItsVolume: no entry speaks of it, and what else would show its volume
// is gone by the time a manager starts.
func TestAnUnconfirmedAttachmentIsDeletedWithItsVolume(t *testing.T) {
	w := newWorld(t)
	for name, foreign := range map[string]bool{"ours": false, "of upstream": true} {
		t.Run(name, func(t *testing.T) {
			volume := map[bool]string{false: "unconfirmed", true: "unconfirmed-foreign"}[foreign]
			w.attacher.set("pv-"+volume, "", true)
			w.node(t, volume)
			claim := w.volume(t, volume, volumeOptions{})
			if foreign {
				w.create(t, upstreamAttachment("", volume, volume))
			}
			_, stop := w.manage(t, managerOptions{})
			intent := w.intent(t, volume, volume, volume)
			until(t, w, attachmentOf(volume, volume), "the attachment is held", func(va *storagev1.VolumeAttachment) bool {
				return exists(va) && held(va)
			})
			w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching)
			stop()
			w.deleteWithoutFinalizers(t, intent, claim)
			w.manage(t, managerOptions{})
			gone(t, w, attachmentOf(volume, volume))
			until(t, w, stateOf(volume), "nothing is left", func(s *volumesv1alpha1.NodeVolumeState) bool {
				return exists(s) && len(s.Spec.Attachments) == 0
			})
			w.lockGone(t, volume)
		})
	}
}

// deleteWithoutFinalizers deletes an intent, its claim and its volume as a user does that removes every finalizer.
func (w *world) deleteWithoutFinalizers(
	t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, claim *corev1.PersistentVolumeClaim,
) {
	t.Helper()
	for _, o := range []client.Object{intent, claim,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name}}} {
		w.delete(t, o)
		w.change(t, o, func() { o.SetFinalizers(nil) })
	}
}
