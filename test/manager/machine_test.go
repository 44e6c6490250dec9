/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// ofAnotherMachine has the agent report the volume as in use by another machine of the node's name, as the agent of a
// replacement does, and release nothing of that.
func (w *world) ofAnotherMachine(t *testing.T, a *agent, claim string) {
	t.Helper()
	a.set(func() { a.hangs = true })
	state := stateOf(a.node)
	w.changeStatus(t, state, func() {
		handshake.VolumeOf(state, uniqueName(claim)).Machine = &volumesv1alpha1.MachineIdentity{SystemUUID: "first"}
	})
}

// TestWhatAnotherMachineUsesIsReleasedByADeclaration although the agent of its replacement reports, and by nothing else
// then: neither by the deletion of the intent nor by a taint, which says of the replacement that it is off.
func TestWhatAnotherMachineUsesIsReleasedByADeclaration(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	a := w.node(t, "replaced")
	w.node(t, "waiting")
	w.volume(t, "used", volumeOptions{})
	first := w.intent(t, "first", "replaced", "used")
	until(t, w, first, "the intent is Ready", isReady)
	w.ofAnotherMachine(t, a, "used")
	second := w.intent(t, "second", "waiting", "used")
	w.delete(t, first)
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.putOutOfService(t, "replaced")
	until(t, w, stateOf("replaced"), "the agent contradicts the taint", contradicted)
	w.reconcileNode(t, "replaced")
	w.stillThere(t, "used", "replaced")

	uid := entryIn(w.state(t, "replaced"), "used").AttachmentUID
	w.declare(t, "replaced", uid)
	w.attached(t, second)
	state := until(t, w, stateOf("replaced"), "the attachment is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].DetachedTime != nil
	})
	view := handshake.NodeOf(state, uniqueName("used"))
	if got := (handshake.Protocol{}).MayDropForeign(view); got != handshake.GuardNone {
		t.Errorf("the agent may not drop the line %s of another machine: guard %s, want none after a declaration",
			dump(state.Status.Volumes), got)
	}
	a.set(func() { a.hangs = false }) // it drops the line
	until(t, w, stateOf("replaced"), "line, entry, declaration are gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments)+len(s.Status.Volumes) == 0 && !declares(s, uid)
	})
}
