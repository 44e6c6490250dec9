/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func aNodeStateIsCreatedAndDeletedWithItsNode(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "coming"}}
	w.create(t, node)
	state := until(t, w, stateOf("coming"), "the state is there", exists)
	if len(state.Finalizers) != 1 || state.Finalizers[0] != volumesv1alpha1.ReleaseFinalizer ||
		len(state.OwnerReferences) != 0 {
		t.Errorf("node state coming: %s; want the release finalizer and no owner", dump(state))
	}
	w.delete(t, node)
	gone(t, w, stateOf("coming"))
}

func aNodeStateOutlivesItsNodeWhileAVolumeIsAttached(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "outlived")
	w.volume(t, "outlived", volumeOptions{})
	intent := w.intent(t, "outlived", "outlived", "outlived")
	until(t, w, intent, "the intent is Ready", isReady)
	w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "outlived"}})
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeNotFound)
	until(t, w, attachmentOf("outlived", "outlived"), "the volume stays", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil
	})
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, attachmentOf("outlived", "outlived"))
	gone(t, w, stateOf("outlived"))
}

func anUnreachableAgentIsReportedOnItsNodeStateAndIntents(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "silent")
	w.renew(t, "silent", 1)
	w.volume(t, "silent", volumeOptions{})
	intent := w.intent(t, "silent", "silent", "silent")
	until(t, w, intent, "the intent is Ready", isReady)
	a.stop()
	w.renew(t, "silent", 1)
	state := until(t, w, stateOf("silent"), "the node is Unknown", func(s *volumesv1alpha1.NodeVolumeState) bool {
		ready := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionUnknown &&
			ready.Reason == volumesv1alpha1.ReasonAgentUnreachable
	})
	if !strings.Contains(state.Status.Conditions[0].Message, "silent") {
		t.Errorf("message of node state silent: %q; want the agent's name", state.Status.Conditions[0].Message)
	}
	w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown, volumesv1alpha1.ReasonAgentUnreachable)
	if !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
		t.Errorf("conditions of intent %s, whose agent is unreachable: %s; want Attached True", intent.Name,
			dump(intent.Status.Conditions))
	}
	w.renew(t, "silent", 3600)
	w.agent(t, "silent")
	until(t, w, intent, "the intent is Ready again", isReady)
}

func aNodeOutOfServiceLosesItsVolumesAndGetsNoneBeforeItsAgentReports(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "dead")
	w.node(t, "alive")
	w.volume(t, "forced", volumeOptions{})
	first := w.intent(t, "forced-first", "dead", "forced")
	until(t, w, first, "the first intent is Ready", isReady)
	w.powersOff(t, a)
	second := w.intent(t, "forced-second", "alive", "forced")
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.delete(t, first)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dead"}}
	w.change(t, node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
	w.attached(t, second)
	gone(t, w, first)
	state := until(t, w, stateOf("dead"), "the entry stays, marked detached",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].DetachedTime != nil
		})
	if e := state.Spec.Attachments[0].Evidence; e == nil || e.Type != volumesv1alpha1.EvidenceOutOfServiceTaint ||
		e.BootID != "boot-1" || !strings.Contains(e.Message, "dead") {
		t.Errorf("evidence of the detach from node dead: %s; want OutOfServiceTaint with boot ID and node", dump(e))
	} else if !e.Unprotected {
		t.Errorf("evidence of the detach from node dead: %s; want unprotected, as the driver is not known to cut access",
			dump(e))
	}
	until(t, w, attachmentOf("forced", "dead"), "the attachment's name stays taken",
		func(va *storagev1.VolumeAttachment) bool {
			return exists(va) && va.DeletionTimestamp != nil && len(va.Finalizers) == 1 &&
				va.Finalizers[0] == volumesv1alpha1.ForcedAwayFinalizer
		})
	third := w.intent(t, "forced-third", "dead", "forced")
	w.delete(t, second)
	gone(t, w, second)
	w.reason(t, third, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonForcedAway)
	// The node comes back, with its old mount gone.
	w.change(t, node, func() { node.Spec.Taints = nil })
	w.agent(t, "dead")
	until(t, w, third, "the volume is back", isReady)
}

func aNodeThatIsNotReadyForLongIsForcedWhereThePolicyAllowsIt(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	a := w.node(t, "timed")
	w.volume(t, "timed", volumeOptions{})
	w.volume(t, "untimed", volumeOptions{})
	cutting := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{
		Name: driverName, Annotations: map[string]string{volumesv1alpha1.CutsAccessAnnotation: "true"},
	}}
	w.create(t, cutting)
	defer w.delete(t, cutting)
	timed := newIntent("timed", "timed", "timed")
	timed.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 6 * time.Minute}}
	w.create(t, timed)
	untimed := w.intent(t, "untimed", "timed", "untimed")
	until(t, w, timed, "the intent is Ready", isReady)
	until(t, w, untimed, "the intent is Ready", isReady)
	a.stop()
	since := time.Now()
	w.setReady(t, "timed", corev1.ConditionUnknown, since)
	w.delete(t, timed)
	w.delete(t, untimed)
	w.watched(t, "timed", since, 0)
	for m := time.Minute; m <= 5*time.Minute; m += time.Minute {
		w.advance(t, c, "timed", time.Minute)
		w.watched(t, "timed", since, m)
	}
	// It never comes to use the volume, so that it can go without the agent.
	other := w.intent(t, "timed-other", "timed", "timed-absent")
	w.delete(t, other)
	gone(t, w, other)
	until(t, w, attachmentOf("timed", "timed"), "nothing is forced early", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil
	})
	w.advance(t, c, "timed", time.Minute)
	state := until(t, w, stateOf("timed"), "the first volume is forced away",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return entryIn(s, "timed").DetachedTime != nil
		})
	if e := entryIn(state, "timed").Evidence; e.Type != volumesv1alpha1.EvidenceForcedAfterTimeout || e.Unprotected {
		t.Errorf("evidence of the detach of volume timed: %s; want ForcedAfterTimeout, protected", dump(e))
	}
	gone(t, w, timed)
	if entryIn(state, "untimed").State != volumesv1alpha1.AttachmentAttached {
		t.Errorf("entry of volume untimed, whose policy does not allow force: %s; want it Attached", dump(entryIn(state,
			"untimed")))
	}
}

func entryIn(s *volumesv1alpha1.NodeVolumeState, claim string) volumesv1alpha1.NodeAttachment {
	for _, e := range s.Spec.Attachments {
		if e.VolumeName == uniqueName(claim) {
			return e
		}
	}
	return volumesv1alpha1.NodeAttachment{}
}

func anExpansionIsWrittenToTheNodeStateAndTheClaim(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "growing")
	claim := w.volume(t, "growing", volumeOptions{})
	intent := w.intent(t, "growing", "growing", "growing")
	until(t, w, intent, "the intent is Ready", isReady)
	// What the resizer does.
	pv := newVolume(claim, volumeOptions{})
	w.change(t, pv, func() { pv.Spec.Capacity = capacity("2Gi") })
	w.changeStatus(t, claim, func() {
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
		}
		claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
		}
	})
	until(t, w, stateOf("growing"), "the node is told", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, "growing")
		return e.Capacity != nil && e.Capacity.String() == "2Gi"
	})
	until(t, w, stateOf("growing"), "nothing is due any more", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "growing").ExpandFrom == nil
	})
	until(t, w, claim, "the claim is told", func(c *corev1.PersistentVolumeClaim) bool {
		size := c.Status.Capacity[corev1.ResourceStorage]
		return size.String() == "2Gi" && len(c.Status.Conditions) == 0 && len(c.Status.AllocatedResourceStatuses) == 0
	})
}
