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
)

// TestAnAttachmentOfADeletedVolumeIsDetached: nothing but the node's entry shows by then which volume the
// attachment is of.
func TestAnAttachmentOfADeletedVolumeIsDetached(t *testing.T) {
	w := newWorld(t)
	_, stop := w.manage(t, replace)
	w.managedNode(t, "bereft")
	claim := w.volume(t, "bereft", volumeOptions{})
	p := w.pod(t, "bereft", "bereft", "bereft")
	w.listed(t, "bereft", "bereft")
	w.kubeletUses(t, "bereft", "bereft")
	w.kill(t, p)
	w.podIntents(t, p)
	stop()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-bereft"}}
	w.change(t, pv, func() { pv.Finalizers = nil })
	w.delete(t, claim)
	w.delete(t, pv)
	w.manage(t, replace)
	w.stillThere(t, "bereft", "bereft")
	w.kubeletUses(t, "bereft")
	gone(t, w, attachmentOf("bereft", "bereft"))
	w.entryState(t, "bereft", "bereft", "")
}

// TestADetachAfterTheDeletionOfTheVolumeReportsTheProtectionOfItsDriver: the driver is known by the volume's name.
func TestADetachAfterTheDeletionOfTheVolumeReportsTheProtectionOfItsDriver(t *testing.T) {
	w := newWorld(t)
	w.create(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{
		Name: driverName, Annotations: map[string]string{volumesv1alpha1.CutsAccessAnnotation: "true"},
	}})
	machine := w.node(t, "cut")
	claim := w.volume(t, "cut", volumeOptions{})
	_, stop := w.manage(t, managerOptions{})
	intent := w.intent(t, "cut", "cut", "cut")
	until(t, w, intent, "the intent is Ready", isReady)
	stop()
	w.powersOff(t, machine)
	w.deleteWithoutFinalizers(t, intent, claim)
	node := nodeNamed("cut")
	w.change(t, node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
	w.manage(t, managerOptions{})
	state := until(t, w, stateOf("cut"), "the volume is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "cut").DetachedTime != nil
	})
	if e := entryIn(state, "cut").Evidence; e.Type != volumesv1alpha1.EvidenceOutOfServiceTaint || e.Unprotected {
		t.Errorf("evidence of the detach of volume cut: %s; want OutOfServiceTaint, protected", dump(e))
	}
}
