/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhatIsLeftOfAVolumeThatIsDeletedIsDetached: nothing but the node's entry tells by then which volume the attachment is of.
func TestWhatIsLeftOfAVolumeThatIsDeletedIsDetached(t *testing.T) {
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
