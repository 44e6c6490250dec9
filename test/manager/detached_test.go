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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
)

// anAttachmentMarkedAsDetachedIsReportedUntilItIsAttachedAgain: by the attacher or by a user.
func anAttachmentMarkedAsDetachedIsReportedUntilItIsAttachedAgain(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "marked")
	w.volume(t, "marked", volumeOptions{})
	intent := w.intent(t, "marked", "marked", "marked")
	until(t, w, intent, "the intent is Ready", isReady)
	w.attacher.set("pv-marked", "", true)
	va := attachmentOf("marked", "marked")
	w.changeStatus(t, va, func() { va.Status.Attached = false })
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachmentLost)
	w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachmentLost)
	w.awaitIntentEvent(t, intent, intentstatus.EventFailedAttach)
	w.changeStatus(t, va, func() {
		va.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "the array is on fire"}
	})
	until(t, w, intent, "the attacher's words are told", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.LastError != nil && strings.Contains(i.Status.LastError.Message, "the array is on fire")
	})
	state := until(t, w, stateOf("marked"), "the entry stays", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "marked").AttachmentUID == va.UID
	})
	if e := entryIn(state, "marked"); e.State != volumesv1alpha1.AttachmentAttached || !state.Status.Volumes[0].InUse {
		t.Errorf("node state of volume marked: %s; want the entry Attached and the volume in use", dump(state))
	}
	// It comes back as another device.
	w.changeStatus(t, va, func() {
		va.Status = storagev1.VolumeAttachmentStatus{
			Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/other"},
		}
	})
	w.attached(t, intent)
	until(t, w, stateOf("marked"), "the node is told of the device", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, "marked")
		return e.PublishContext["device"] == "/dev/other" && e.AttachmentUID == va.UID
	})
	if intent.Status.LastError != nil {
		t.Errorf("lastError of intent %s after the attach: %s; want none", intent.Name, dump(intent.Status.LastError))
	}
	w.attacher.set("pv-marked", "", false)
	w.delete(t, intent)
	gone(t, w, intent)
}

// aFailedDetachIsReportedOnItsNodeUntilItSucceeds: the intent is gone by then, and maybe its namespace.
func aFailedDetachIsReportedOnItsNodeUntilItSucceeds(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "undetached")
	w.volume(t, "undetached", volumeOptions{})
	intent := w.intent(t, "undetached", "undetached", "undetached")
	until(t, w, intent, "the intent is Ready", isReady)
	w.attacher.set("pv-undetached", "", true)
	w.delete(t, intent)
	gone(t, w, intent)
	va := attachmentOf("undetached", "undetached")
	until(t, w, va, "it is to be detached", func(va *storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp != nil
	})
	requests.reset()
	fail := func(at time.Time, message string) {
		w.changeStatus(t, va, func() {
			va.Status.DetachError = &storagev1.VolumeError{Time: metav1.NewTime(at), Message: message}
		})
		until(t, w, stateOf("undetached"), "the node's state says why not", func(s *volumesv1alpha1.NodeVolumeState) bool {
			return entryIn(s, "undetached").DetachError == message
		})
	}
	now := time.Now()
	fail(now, `failed to load secret "tenant/publish"`)
	if note := w.awaitEvent(t, "undetached", attachment.EventFailedDetach); !strings.Contains(note, "tenant/publish") ||
		!strings.Contains(note, va.Name) {
		t.Errorf("event of node state undetached: %q; want the driver's error and attachment %s", note, va.Name)
	}
	// The same again costs nothing.
	w.changeStatus(t, va, func() { va.Status.DetachError.Time = metav1.NewTime(now.Add(time.Minute)) })
	fail(now.Add(2*time.Minute), "the array is on fire")
	if n := requests.count("PUT nodevolumestates"); n != 2 {
		t.Errorf("%d writes of node states to report two errors, want 2", n)
	}
	w.attacher.set("pv-undetached", "", false)
	gone(t, w, va)
	until(t, w, stateOf("undetached"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}

// aDeletedIntentReportsThatItWaitsForAnUnreachableAgent: its namespace may wait with it.
func aDeletedIntentReportsThatItWaitsForAnUnreachableAgent(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	machine := w.node(t, "mute")
	w.renew(t, "mute", 1)
	w.volume(t, "mute", volumeOptions{})
	intent := newIntent("mute", "mute", "mute")
	intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 6 * time.Minute}}
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	machine.stop()
	w.delete(t, intent)
	w.renew(t, "mute", 1)
	message := w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable)
	for _, words := range []string{"being deleted", "6m0s", corev1.TaintNodeOutOfService} {
		if !strings.Contains(message, words) {
			t.Errorf("message of intent %s: %q; want %q in it", intent.Name, message, words)
		}
	}
	w.renew(t, "mute", 3600)
	w.agent(t, "mute")
	gone(t, w, intent)
}
