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
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/handshake"
)

// notReady sets the Node's condition Ready as the node controller does once a kubelet is silent.
func (w *world) notReady(t *testing.T, name string) {
	t.Helper()
	n := nodeNamed(name)
	w.changeStatus(t, n, func() {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	})
}

// nodeNow reads the Node live.
func (w *world) nodeNow(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := nodeNamed(name)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func setByHawser(n *corev1.Node) bool { return handshake.SetByHawser(handshake.OutOfService(n)) }

func TestAFencedNodeIsOutOfServiceUntilItsAgentHasReportedThatNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t), manageTaint: true})
	defer stop()
	a, intent := w.used(t, "dead")
	w.fences(t, "dead", "off")
	until(t, w, stateOf("dead"), "the agent contradicts the fence", fenceContradicted)
	w.notReady(t, "dead")
	w.fences(t, "dead", "on")
	until(t, w, stateOf("dead"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(fencesOf(s)) == 0
	})
	a.stop()
	w.fences(t, "dead", "off")
	until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
	if n := w.nodeNow(t, "dead"); handshake.OutOfService(n) != nil {
		t.Errorf("taints of node dead, whose agent is not silent for long: %s, want none", dump(n.Spec.Taints))
	}
	w.fallsSilent(t, c, a)
	until(t, w, nodeNamed("dead"), "the manager sets the taint", setByHawser)
	w.awaitEvent(t, "dead", node.EventNodeOutOfService)

	w.delete(t, intent)
	until(t, w, attachmentOf("data", "dead"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
	state := w.state(t, "dead")
	if e := entryIn(state, "data").Evidence; e == nil || e.Type != volumesv1alpha1.EvidenceFenced {
		t.Errorf("evidence of the detach of volume data: %s; want the fence, for the taint only follows from it", dump(e))
	}
	if state.Status.Node.OutOfService != nil {
		t.Errorf("record of the taint: %s; want none, for the manager has set it", dump(state.Status.Node.OutOfService))
	}

	w.fences(t, "dead", "on")
	w.awaitEvent(t, "dead", node.EventFenceLifted)
	if n := w.nodeNow(t, "dead"); !setByHawser(n) {
		t.Errorf("taints of node dead before its agent has reported: %s, want that of the manager", dump(n.Spec.Taints))
	}
	w.agent(t, "dead")
	until(t, w, nodeNamed("dead"), "the manager removes the taint", func(n *corev1.Node) bool {
		return handshake.OutOfService(n) == nil
	})
	w.awaitEvent(t, "dead", node.EventNodeInService)
	if s := w.state(t, "dead"); !handshake.Settled(s, w.nodeNow(t, "dead")) {
		t.Errorf("state of node dead when the taint is gone: %s; want nothing left of what was forced away", dump(s))
	}
}

// fencedAway forces volume data away from node dead, which the manager has put out of service on a fence.
func (w *world) fencedAway(t *testing.T, c *stepClock) {
	t.Helper()
	a, intent := w.used(t, "dead")
	w.notReady(t, "dead")
	a.stop()
	w.fences(t, "dead", "off")
	w.fallsSilent(t, c, a)
	until(t, w, nodeNamed("dead"), "the manager sets the taint", setByHawser)
	w.delete(t, intent)
	until(t, w, attachmentOf("data", "dead"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
}

// TestAFencedNodeStaysOutOfServiceWhileSomethingOfTheOldMountIsLeft: the agent is back and reports, and what was forced
// away is still mounted.
func TestAFencedNodeStaysOutOfServiceWhileSomethingOfTheOldMountIsLeft(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t), manageTaint: true})
	defer stop()
	w.fencedAway(t, c)
	w.fences(t, "dead", "on")
	state := stateOf("dead")
	w.changeStatus(t, state, func() { // what the agent reports that finds the old mount
		state.Status.Protocol.Reports++
		state.Status.Protocol.Session = state.Status.Protocol.Reports
		state.Status.Conditions = nil
	})
	w.renew(t, "dead", 1)
	w.reconcileNode(t, "dead")
	if n := w.nodeNow(t, "dead"); !setByHawser(n) {
		t.Errorf("taints of node dead while the old mount is left: %s, want that of the manager", dump(n.Spec.Taints))
	}
	w.volume(t, "new", volumeOptions{})
	refused := w.intent(t, "new", "dead", "new")
	w.reason(t, refused, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeFenced)
	w.agent(t, "dead")
	until(t, w, nodeNamed("dead"), "the manager removes the taint", func(n *corev1.Node) bool {
		return handshake.OutOfService(n) == nil
	})
}

// TestAFencedNodeWithoutVolumesIsPutOutOfServiceAsSoonAsTheFenceIsSeen although nothing else wakes it then.
func TestAFencedNodeWithoutVolumesIsPutOutOfServiceAsSoonAsTheFenceIsSeen(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t), manageTaint: true})
	defer stop()
	w.create(t, powerState("dead", "on"))
	a := w.node(t, "dead")
	until(t, w, stateOf("dead"), "the agent reports", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.Reports > 0
	})
	w.identify(t, "dead", firstMachine, firstMachine)
	w.notReady(t, "dead")
	w.fallsSilent(t, c, a)
	w.fences(t, "dead", "off")
	until(t, w, nodeNamed("dead"), "the manager sets the taint", setByHawser)
}

// TestTheTaintThatTheManagerHasSetIsRemovedWithoutTheOptionToo: the option is taken away while the machine is off.
func TestTheTaintThatTheManagerHasSetIsRemovedWithoutTheOptionToo(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t), manageTaint: true})
	w.fencedAway(t, c)
	stop()

	_, stop = w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t)})
	defer stop()
	w.reconcileNode(t, "dead")
	if n := w.nodeNow(t, "dead"); !setByHawser(n) {
		t.Errorf("taints of node dead before its agent has reported: %s, want that of the manager", dump(n.Spec.Taints))
	}
	w.fences(t, "dead", "on")
	w.agent(t, "dead")
	until(t, w, nodeNamed("dead"), "the manager removes the taint", func(n *corev1.Node) bool {
		return handshake.OutOfService(n) == nil
	})
}

func TestTheManagerChangesNoTaintThatItHasNotSet(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t), manageTaint: true})
	defer stop()
	a, _ := w.used(t, "dead")
	w.notReady(t, "dead")
	w.putOutOfService(t, "dead")
	taints := w.nodeNow(t, "dead").Spec.Taints
	a.stop()
	w.fences(t, "dead", "off")
	until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
	w.fallsSilent(t, c, a)
	w.reconcileNode(t, "dead")
	w.agent(t, "dead")
	until(t, w, stateOf("dead"), "the agent contradicts the fence", fenceContradicted)
	w.reconcileNode(t, "dead")
	if got := w.nodeNow(t, "dead").Spec.Taints; dump(got) != dump(taints) {
		t.Errorf("taints of node dead: %s, want %s", dump(got), dump(taints))
	}
}
