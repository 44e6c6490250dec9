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

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// leaderWithStaleAccessModes: several nodes could have the volume until its access modes changed, of which the
// manager has no news.
func leaderWithStaleAccessModes(t *testing.T, w *world) {
	quiet := &watchPause{resource: "persistentvolumes"}
	_, stop := w.manage(t, managerOptions{transport: quiet.transport})
	defer stop()
	w.node(t, "modes-a")
	w.node(t, "modes-b")
	w.volume(t, "modes", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	w.volume(t, "modes-marker", volumeOptions{})
	before := w.intent(t, "modes-before", "modes-a", "modes")
	w.attached(t, before)
	w.attached(t, w.intent(t, "modes-marker", "modes-a", "modes-marker"))
	w.delete(t, before)
	gone(t, w, before)
	gone(t, w, attachmentOf("modes", "modes-a"))
	until(t, w, stateOf("modes-a"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.AttachmentOf(s, uniqueName("modes")) == nil
	})

	quiet.begin()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-modes"}}
	w.change(t, pv, func() { pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce} })
	first := w.intent(t, "modes-first", "modes-a", "modes")
	second := w.intent(t, "modes-second", "modes-b", "modes")
	for _, node := range []string{"modes-a", "modes-b"} {
		until(t, w, attachmentOf("modes", node), "the driver has attached it", func(va *storagev1.VolumeAttachment) bool {
			return va.Status.Attached
		})
	}
	w.attached(t, w.intent(t, "modes-marker-2", "modes-a", "modes-marker"))
	quiet.end()

	w.attached(t, first)
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	if lock := w.lockOf(t, "modes"); lock.Holder != "modes-a" {
		t.Errorf("lock of volume modes: %+v; want holder modes-a", lock)
	}
	w.releaseAndDetach(t, first, "modes")
	w.attached(t, second)
}
