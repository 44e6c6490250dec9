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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

const declaredReason = "rack 7 burned down, ticket 4711"

// TestDeclarations: an administrator's word on one attachment is the way out of every wedge.
func TestDeclarations(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"a node out of service that never returns", aNodeOutOfServiceThatNeverReturns},
		{"a node that hangs in an unknown state", aNodeThatHangsInAnUnknownState},
		{"an agent that never reported", anAgentThatNeverReported},
		{"an attachment without an entry", anAttachmentWithoutAnEntry},
		{"an attachment that is still wanted is created again", anAttachmentThatIsStillWantedIsCreatedAgain},
		{"an unknown UID", anUnknownUID},
		{"a kubelet's mount without a UID is forgotten with its Node", aKubeletsMountWithoutAUIDIsForgottenWithItsNode},
		{"in mode Replace: a node that hangs", aNodeThatHangsInModeReplace},
		{"in mode Replace: an agent that died before its check", anAgentThatDiedBeforeItsCheck},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

func (w *world) declare(t *testing.T, node string, uid types.UID) {
	t.Helper()
	state := stateOf(node)
	w.change(t, state, func() {
		metav1.SetMetaDataAnnotation(&state.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+string(uid), declaredReason)
	})
}

func declares(s *volumesv1alpha1.NodeVolumeState, uid types.UID) bool {
	_, ok := s.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(uid)]
	return ok
}

func aNodeOutOfServiceThatNeverReturns(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "burned")
	w.node(t, "burned-other")
	w.volume(t, "burned", volumeOptions{})
	first := w.intent(t, "burned-first", "burned", "burned")
	until(t, w, first, "the intent is Ready", isReady)
	w.powersOff(t, a)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "burned"}}
	w.change(t, node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
	second := w.intent(t, "burned-second", "burned-other", "burned")
	w.delete(t, first)
	w.attached(t, second)
	state := until(t, w, stateOf("burned"), "entry and line stay, for the agent does not report",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].DetachedTime != nil && len(s.Status.Volumes) == 1 &&
				s.Status.Volumes[0].InUse
		})
	uid := state.Spec.Attachments[0].AttachmentUID
	until(t, w, attachmentOf("burned", "burned"), "the attachment's name stays taken",
		func(va *storagev1.VolumeAttachment) bool { return exists(va) && va.UID == uid })

	w.declare(t, "burned", uid)
	gone(t, w, attachmentOf("burned", "burned"))
	w.delete(t, node)
	gone(t, w, stateOf("burned"))

	w.create(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "burned", Labels: map[string]string{corev1.LabelHostname: "burned"}},
	})
	w.agent(t, "burned")
	third := w.intent(t, "burned-third", "burned", "burned")
	w.delete(t, second)
	until(t, w, third, "a new node of that name has the volume", isReady)
	if va := until(t, w, attachmentOf("burned", "burned"), "there is an attachment", exists); va.UID == uid {
		t.Errorf("attachment %s of the new node burned has UID %s of the old one, want another", va.Name, va.UID)
	}
}

func aNodeThatHangsInAnUnknownState(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "hung")
	w.node(t, "hung-other")
	w.volume(t, "hung", volumeOptions{})
	first := w.intent(t, "hung-first", "hung", "hung")
	until(t, w, first, "the intent is Ready", isReady)
	a.stop()
	second := w.intent(t, "hung-second", "hung-other", "hung")
	w.delete(t, first)
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	state := until(t, w, stateOf("hung"), "the volume is attached and in use",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].State == volumesv1alpha1.AttachmentAttached &&
				len(s.Status.Volumes) == 1
		})
	uid := state.Spec.Attachments[0].AttachmentUID

	w.declare(t, "hung", uid)
	// The agent has stopped a moment ago, so it is not silent yet.
	if note := w.awaitEvent(t, "hung", "DetachingVolume"); !strings.Contains(note, "DeclaredByAdministrator: "+
		declaredReason+"; the node's agent still reported the volume in use; unprotected") {
		t.Errorf("event of node state hung: %q; want the declaration, its reason, what it overrules, and unprotected", note)
	}
	w.attached(t, second)
	gone(t, w, first)
	gone(t, w, attachmentOf("hung", "hung"))

	// For the node itself the declaration says nothing: its agent may find the old mount.
	third := w.intent(t, "hung-third", "hung", "hung")
	w.delete(t, second)
	gone(t, w, attachmentOf("hung", "hung-other"))
	w.reason(t, third, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonForcedAway)
	if va := attachmentOf("hung",
		"hung"); !apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(va), va)) {
		t.Errorf("attachment %s of node hung exists with UID %s, want none before its agent has reported", va.Name, va.UID)
	}

	// The agent that was thought dead speaks again: line and entry go, and the declaration with them.
	w.agent(t, "hung")
	until(t, w, stateOf("hung"), "the declaration is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return !declares(s, uid)
	})
	until(t, w, third, "the node has the volume again", isReady)
}

// anAgentThatNeverReported: the state was cut off by force and created again, so that the entry is lost.
func anAgentThatNeverReported(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "mute")
	w.node(t, "mute-other")
	w.volume(t, "mute", volumeOptions{})
	first := w.intent(t, "mute-first", "mute", "mute")
	until(t, w, first, "the intent is Ready", isReady)
	a.stop()
	w.delete(t, first)
	state := stateOf("mute")
	w.change(t, state, func() {})
	old := state.UID
	w.delete(t, state)
	w.change(t, state, func() { state.Finalizers = nil })
	until(t, w, stateOf("mute"), "the state is made anew", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.UID != old
	})
	second := w.intent(t, "mute-second", "mute-other", "mute")
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	va := until(t, w, attachmentOf("mute", "mute"), "the attachment stays", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil
	})

	w.declare(t, "mute", va.UID)
	gone(t, w, attachmentOf("mute", "mute"))
	w.attached(t, second)
	gone(t, w, first)
	until(t, w, stateOf("mute"), "the entry remembers the declaration", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].DetachedTime != nil && declares(s, va.UID) &&
			s.Spec.Attachments[0].Evidence.Type == volumesv1alpha1.EvidenceDeclaredByAdministrator &&
			s.Spec.Attachments[0].Evidence.Message == declaredReason
	})
	w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mute"}})
	gone(t, w, stateOf("mute"))
}

func anAttachmentWithoutAnEntry(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "foreign")
	w.volume(t, "foreign", volumeOptions{})
	va := attachmentOf("foreign", "foreign")
	va.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: driverName, NodeName: "foreign",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-foreign")},
	}
	w.create(t, va)
	uid := va.UID
	until(t, w, attachmentOf("foreign", "foreign"), "it is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
	until(t, w, stateOf("foreign"), "the node has a state", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID != ""
	})
	w.declare(t, "foreign", uid)
	gone(t, w, attachmentOf("foreign", "foreign"))
	until(t, w, stateOf("foreign"), "entry and declaration are gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0 && !declares(s, uid)
	})
}

func anAttachmentThatIsStillWantedIsCreatedAgain(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "anew")
	w.volume(t, "anew", volumeOptions{})
	intent := w.intent(t, "anew", "anew", "anew")
	until(t, w, intent, "the intent is Ready", isReady)
	va := until(t, w, attachmentOf("anew", "anew"), "there is an attachment", exists)
	requests.reset()
	w.declare(t, "anew", va.UID)
	until(t, w, stateOf("anew"), "another attachment is in use, and the declaration is gone",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Spec.Attachments) == 1 && s.Spec.Attachments[0].AttachmentUID != va.UID && !declares(s, va.UID) &&
				len(s.Status.Volumes) == 1 && s.Status.Volumes[0].AttachmentUID == s.Spec.Attachments[0].AttachmentUID
		})
}

func anUnknownUID(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "typo")
	until(t, w, stateOf("typo"), "the node has a state", exists)
	w.declare(t, "typo", "5eaf00d5-0000-0000-0000-000000000000")
	if note := w.awaitEvent(t, "typo", "UnknownAttachment"); !strings.Contains(note,
		"5eaf00d5-0000-0000-0000-000000000000") {
		t.Errorf("event of node state typo: %q; want the unknown UID", note)
	}
	until(t, w, stateOf("typo"), "the declaration is taken off", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && !declares(s, "5eaf00d5-0000-0000-0000-000000000000")
	})
}

// aKubeletsMountWithoutAUIDIsForgottenWithItsNode: upstream attached it, and it could not be declared.
func aKubeletsMountWithoutAUIDIsForgottenWithItsNode(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	a := w.node(t, "unnamed")
	w.node(t, "unnamed-other")
	w.volume(t, "unnamed", volumeOptions{})
	a.set(func() { a.mounted = map[string]bool{uniqueName("unnamed"): true} })
	until(t, w, stateOf("unnamed"), "the agent sees the mount", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1 && s.Status.Volumes[0].InUse && s.Status.Volumes[0].AttachmentUID == ""
	})
	intent := w.intent(t, "unnamed", "unnamed-other", "unnamed")
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	a.stop()
	w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unnamed"}})
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.reconcileNode(t, "unnamed")
	until(t, w, stateOf("unnamed"), "the state stays while the agent may be there",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return exists(s) && s.DeletionTimestamp == nil
		})
	c.advance(10 * time.Minute)
	w.reconcileNode(t, "unnamed")
	gone(t, w, stateOf("unnamed"))
	w.attached(t, intent)
}

// reconcileNode makes the controllers reconcile a node.
func (w *world) reconcileNode(t *testing.T, node string) {
	t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "look-again"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "other.csi.hawser.io", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("other")},
		}}
	w.create(t, va)
	w.delete(t, va)
	gone(t, w, va)
}

func aNodeThatHangsInModeReplace(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "hangs")
	w.managedNode(t, "hangs-other")
	w.volume(t, "hangs", volumeOptions{})
	p := w.pod(t, "hangs", "hangs", "hangs")
	w.listed(t, "hangs", "hangs")
	w.kubeletUses(t, "hangs", "hangs")
	a.set(func() { a.mounted = map[string]bool{uniqueName("hangs"): true} })
	until(t, w, stateOf("hangs"), "the agent sees the mount", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.NodeOf(nvs, uniqueName("hangs")).Use.InUse
	})
	a.stop()
	w.kill(t, p)
	q := w.pod(t, "hangs-2", "hangs-other", "hangs")
	entry := w.entryState(t, "hangs", "hangs", volumesv1alpha1.AttachmentAttached)
	w.declare(t, "hangs", entry.AttachmentUID)
	w.listed(t, "hangs-other", "hangs")
	w.notListed(t, "hangs", "hangs")
	gone(t, w, attachmentOf("hangs", "hangs"))
	w.entryState(t, "hangs", "hangs", volumesv1alpha1.AttachmentDetaching)
	w.kubeletUses(t, "hangs")
	w.agent(t, "hangs")
	w.entryState(t, "hangs", "hangs", "")
	w.kill(t, q)
}

// anAgentThatDiedBeforeItsCheck: Detaching rests on the agent's release, but the delete waits for a check that never
// comes.
func anAgentThatDiedBeforeItsCheck(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	for name, end := range map[string]func(node string, uid types.UID){
		"by-word": func(node string, uid types.UID) { w.declare(t, node, uid) },
		"by-taint": func(node string, _ types.UID) {
			n := nodeNamed(node)
			w.change(t, n, func() {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			})
		},
	} {
		a := w.managedNode(t, name)
		w.volume(t, name, volumeOptions{})
		p := w.pod(t, name, name, name)
		w.listed(t, name, name)
		a.set(func() { a.skipsChecks = true })
		w.kill(t, p)
		w.notListed(t, name, name)
		entry := w.entryState(t, name, name, volumesv1alpha1.AttachmentDetaching)
		if entry.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
			t.Errorf("evidence of the detach of volume %s: %s; want AgentReleased", name, entry.Evidence.Type)
		}
		w.powersOff(t, a)
		end(name, entry.AttachmentUID)
		until(t, w, attachmentOf(name, name), "nothing is published any more", func(va *storagev1.VolumeAttachment) bool {
			return !exists(va) || handshake.AttachmentFrom(va).Gone()
		})
	}
	w.entryState(t, "by-word", "by-word", volumesv1alpha1.AttachmentDetaching)
	gone(t, w, attachmentOf("by-word", "by-word"))
	if entry := w.entryState(t, "by-taint", "by-taint",
		volumesv1alpha1.AttachmentDetaching); entry.Evidence.Type != volumesv1alpha1.EvidenceOutOfServiceTaint {
		t.Errorf("volume by-taint: detached on evidence %s, want OutOfServiceTaint", entry.Evidence.Type)
	}
}
