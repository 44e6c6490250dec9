/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/handshake"
)

// TestANodeThatIsDeletedAndRegistersAgain: in place of upstream the kubelet reads and writes through the Node.
// Its object may go and come between any two steps of a detach.
func TestANodeThatIsDeletedAndRegistersAgain(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"a kubelet that is about to mount may continue without its Node",
			aKubeletThatIsAboutToMountMayContinueWithoutItsNode},
		{"a Node that registers between Detaching and the unlisting", aNodeThatRegistersBeforeTheUnlisting},
		{"a Node that registers between the unlisting and the agent's check", aNodeThatRegistersBeforeTheCheck},
		{"the manager waits for an absent Node until it counts as gone", theManagerWaitsForAnAbsentNodeUntilItCountsAsGone},
		{"a pod's volume is listed on the new Node", aPodsVolumeIsListedOnTheNewNode},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// deregister deletes the Node, and waits until the manager knows.
func (w *world) deregister(t *testing.T, name string) {
	t.Helper()
	w.delete(t, nodeNamed(name))
	w.volume(t, name+"-probe", volumeOptions{})
	probe := w.intent(t, name+"-probe", name, name+"-probe")
	w.reason(t, probe, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeNotFound)
	w.delete(t, probe)
	gone(t, w, probe)
}

// register makes the Node as a kubelet does that has just started.
func (w *world) register(t *testing.T, name string) {
	t.Helper()
	w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name},
		Annotations: map[string]string{cached.ManagedNodeAnnotation: "true"},
	}})
}

// considered has the manager reconcile the volume once more, and say that it waits for it.
func (w *world) considered(t *testing.T, claim, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	intent := w.intent(t, claim+"-waits", node, claim)
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	return intent
}

func aKubeletThatIsAboutToMountMayContinueWithoutItsNode(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "orphaned")
	w.managedNode(t, "orphaned-other")
	w.volume(t, "orphaned", volumeOptions{})
	p := w.pod(t, "orphaned", "orphaned", "orphaned")
	w.listed(t, "orphaned", "orphaned")
	// It has found the volume listed, and has not called the driver yet.
	w.kubeletUses(t, "orphaned", "orphaned")
	w.kill(t, p)
	w.podIntents(t, p)
	w.deregister(t, "orphaned")
	waits := w.considered(t, "orphaned", "orphaned-other")
	w.stillThere(t, "orphaned", "orphaned")
	w.entryState(t, "orphaned", "orphaned", volumesv1alpha1.AttachmentAttached)
	// Now it mounts, and is then restarted, which makes it forget.
	a.set(func() { a.mounted = map[string]bool{uniqueName("orphaned"): true} })
	until(t, w, stateOf("orphaned"), "the agent sees the mount", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.NodeOf(s, uniqueName("orphaned")).Use.InUse
	})
	w.register(t, "orphaned")
	w.volume(t, "orphaned-again", volumeOptions{})
	w.pod(t, "orphaned-again", "orphaned", "orphaned-again")
	w.listed(t, "orphaned", "orphaned-again")
	w.stillThere(t, "orphaned", "orphaned")
	a.set(func() { a.mounted = nil })
	w.attached(t, waits)
}

func aNodeThatRegistersBeforeTheUnlisting(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	a := w.managedNode(t, "anew-1")
	w.managedNode(t, "anew-1-other")
	w.volume(t, "anew-1", volumeOptions{})
	p := w.pod(t, "anew-1", "anew-1", "anew-1")
	w.listed(t, "anew-1", "anew-1")
	stop()
	w.kill(t, p)
	// A manager wrote Detaching, and died.
	state := stateOf("anew-1")
	w.change(t, state, func() {
		e := handshake.AttachmentOf(state, uniqueName("anew-1"))
		e.State = volumesv1alpha1.AttachmentDetaching
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased, Time: metav1.Now()}
	})
	w.delete(t, nodeNamed("anew-1"))
	a.set(func() { a.skipsChecks = true })
	_, stop = w.manage(t, replace)
	defer stop()
	w.considered(t, "anew-1", "anew-1-other")
	w.stillThere(t, "anew-1", "anew-1")
	if e := w.entryState(t, "anew-1", "anew-1", volumesv1alpha1.AttachmentDetaching); e.Protocol.UnlistedGeneration != 0 {
		t.Errorf("entry of volume anew-1: %s; want it not unlisted, as the Node could not be read", dump(e))
	}
	w.register(t, "anew-1")
	until(t, w, stateOf("anew-1"), "it is unlisted on the new Node", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "anew-1").Protocol.UnlistedGeneration > 0
	})
	until(t, w, nodeNamed("anew-1"), "a listing that was decided on before is void", func(n *corev1.Node) bool {
		return n.Annotations["volumes.hawser.io/unlistings"] == "1"
	})
	w.stillThere(t, "anew-1", "anew-1")
	a.set(func() { a.skipsChecks = false })
	gone(t, w, attachmentOf("anew-1", "anew-1"))
}

func aNodeThatRegistersBeforeTheCheck(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "anew-2")
	w.managedNode(t, "anew-2-other")
	w.volume(t, "anew-2", volumeOptions{})
	p := w.pod(t, "anew-2", "anew-2", "anew-2")
	w.listed(t, "anew-2", "anew-2")
	a.set(func() { a.skipsChecks = true })
	w.kill(t, p)
	until(t, w, stateOf("anew-2"), "it is unlisted", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "anew-2").Protocol.UnlistedGeneration > 0
	})
	w.deregister(t, "anew-2")
	waits := w.considered(t, "anew-2", "anew-2-other")
	w.stillThere(t, "anew-2", "anew-2")
	w.register(t, "anew-2")
	// The kubelet had mounted it before it was restarted; the check finds that.
	a.set(func() { a.skipsChecks, a.mounted = false, map[string]bool{uniqueName("anew-2"): true} })
	until(t, w, stateOf("anew-2"), "the agent has looked", func(s *volumesv1alpha1.NodeVolumeState) bool {
		n := handshake.NodeOf(s, uniqueName("anew-2"))
		return n.Looked && n.Use.InUse
	})
	w.stillThere(t, "anew-2", "anew-2")
	a.set(func() { a.mounted = nil })
	gone(t, w, attachmentOf("anew-2", "anew-2"))
	w.attached(t, waits)
}

func theManagerWaitsForAnAbsentNodeUntilItCountsAsGone(t *testing.T, w *world) {
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{attachMode: replace.attachMode, clock: c})
	a := w.managedNode(t, "away")
	w.managedNode(t, "away-other")
	w.volume(t, "away", volumeOptions{})
	p := w.pod(t, "away", "away", "away")
	w.listed(t, "away", "away")
	w.kubeletUses(t, "away", "away")
	w.kill(t, p)
	w.podIntents(t, p)
	w.fallsSilent(t, c, a)
	w.setReady(t, "away", corev1.ConditionUnknown, time.Now())
	w.deregister(t, "away")
	until(t, w, stateOf("away"), "a manager has seen the Node go", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.Absence != nil
	})
	stop()
	c = newStepClock()
	_, stop = w.manage(t, managerOptions{attachMode: replace.attachMode, clock: c})
	defer stop()
	waiting := &waitingIntents{w: w, clock: c, claim: "away", node: "away-other"}
	waiting.advance(t, 0)
	waiting.advance(t, 50*time.Second)
	waiting.advance(t, 4*time.Minute)
	w.stillThere(t, "away", "away")
	c.advance(10 * time.Minute)
	w.advance(t, c, "away-other", 0)
	until(t, w, stateOf("away"), "it is forced away", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, "away").Evidence
		return e != nil && e.Type == volumesv1alpha1.EvidenceNodeGone
	})
	waiting.awaitAttached(t)
	until(t, w, attachmentOf("away", "away"), "the name stays taken", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && handshake.AttachmentFrom(va).Gone()
	})
}

func aPodsVolumeIsListedOnTheNewNode(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	w.managedNode(t, "anew-3")
	w.volume(t, "anew-3", volumeOptions{})
	w.pod(t, "anew-3", "anew-3", "anew-3")
	w.listed(t, "anew-3", "anew-3")
	uid := w.entryState(t, "anew-3", "anew-3", volumesv1alpha1.AttachmentAttached).AttachmentUID
	w.deregister(t, "anew-3")
	w.register(t, "anew-3")
	w.listed(t, "anew-3", "anew-3")
	if entry := w.entryState(t, "anew-3", "anew-3", volumesv1alpha1.AttachmentAttached); entry.AttachmentUID != uid {
		t.Errorf("entry of volume anew-3 has attachment UID %s, want %s, not a new one", entry.AttachmentUID, uid)
	}
}
