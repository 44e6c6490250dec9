/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func (w *world) putOutOfService(t *testing.T, name string) {
	t.Helper()
	node := nodeNamed(name)
	w.change(t, node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
}

func (w *world) putIntoService(t *testing.T, name string) {
	t.Helper()
	node := nodeNamed(name)
	w.change(t, node, func() { node.Spec.Taints = nil })
}

func contradicted(s *volumesv1alpha1.NodeVolumeState) bool {
	return meta.IsStatusConditionFalse(s.Status.Conditions, volumesv1alpha1.ConditionTaintConsistent) &&
		s.Status.Node.OutOfService != nil && s.Status.Node.OutOfService.Contradicted != nil
}

// TestTheTaintOfALiveNodeForcesNothing and stays void after the manager and the agent have restarted. Removed and set
// again on a machine that is off, it counts.
func TestTheTaintOfALiveNodeForcesNothing(t *testing.T) {
	w := newWorld(t)
	_, stop := w.manage(t, managerOptions{})
	a := w.node(t, "alive")
	w.volume(t, "kept", volumeOptions{})
	w.volume(t, "new", volumeOptions{})
	intent := w.intent(t, "kept", "alive", "kept")
	until(t, w, intent, "the intent is Ready", isReady)
	w.putOutOfService(t, "alive")
	state := until(t, w, stateOf("alive"), "the agent contradicts the taint", contradicted)
	c := meta.FindStatusCondition(state.Status.Conditions, volumesv1alpha1.ConditionTaintConsistent)
	if c.Reason != volumesv1alpha1.ReasonTaintContradicted || !strings.Contains(c.Message, "out-of-service-") {
		t.Errorf("condition TaintConsistent: %s; want the reason and the command that removes the taint", dump(c))
	}
	w.awaitEvent(t, "alive", volumesv1alpha1.ReasonTaintContradicted)
	refused := w.intent(t, "new", "alive", "new")
	w.reason(t, refused, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeTainted)

	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	stop()
	w.powersOff(t, a)
	_, stop = w.manage(t, managerOptions{})
	defer stop()
	until(t, w, stateOf("alive"), "the agent counts as unreachable", unreachable)
	w.reconcileNode(t, "alive")
	w.stillThere(t, "kept", "alive")
	if e := entryIn(w.state(t, "alive"), "kept"); e.State != volumesv1alpha1.AttachmentAttached {
		t.Errorf("entry of volume kept: %s; want Attached, for the taint was contradicted", dump(e))
	}

	w.putIntoService(t, "alive")
	until(t, w, stateOf("alive"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.OutOfService == nil && !contradicted(s)
	})
	w.putOutOfService(t, "alive")
	until(t, w, attachmentOf("kept", "alive"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
	if e := entryIn(w.state(t, "alive"), "kept").Evidence; e == nil ||
		e.Type != volumesv1alpha1.EvidenceOutOfServiceTaint {
		t.Errorf("evidence of the detach of volume kept: %s; want OutOfServiceTaint", dump(e))
	}
}

// TestATaintThatIsSetRightAfterTheMachineDiedCountsOnceItsLeaseHasExpired although its kubelet may seem Ready.
func TestATaintThatIsSetRightAfterTheMachineDiedCountsOnceItsLeaseHasExpired(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c})
	defer stop()
	a := w.node(t, "dead")
	w.volume(t, "left", volumeOptions{})
	intent := w.intent(t, "left", "dead", "left")
	until(t, w, intent, "the intent is Ready", isReady)
	a.stop()
	w.putOutOfService(t, "dead")
	w.delete(t, intent)
	until(t, w, stateOf("dead"), "the taint is recorded", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.OutOfService != nil
	})
	w.stillThere(t, "left", "dead")
	w.fallsSilent(t, c, a)
	until(t, w, attachmentOf("left", "dead"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
}
