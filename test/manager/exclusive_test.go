/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// locksWith is the ConfigMap that has the volume's lock.
func locksWith(name string) *corev1.ConfigMap {
	key := exclusive.Key(uniqueName(name))
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

func (w *world) lockOf(t *testing.T, name string) exclusive.Lock {
	t.Helper()
	object := locksWith(name)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("reading the exclusive lock: %v", err)
	}
	if object.Labels[volumesv1alpha1.ExclusiveLocksLabel] == "" {
		t.Errorf("labels of ConfigMap %s: %v; want %s", object.Name, object.Labels, volumesv1alpha1.ExclusiveLocksLabel)
	}
	locks, err := exclusive.Locks(object)
	if err != nil {
		t.Fatalf("reading ConfigMap %s: %v", object.Name, err)
	}
	return locks[uniqueName(name)]
}

// lockGone waits until the volume has no lock.
func (w *world) lockGone(t *testing.T, name string) {
	t.Helper()
	until(t, w, locksWith(name), "the lock is gone", func(object *corev1.ConfigMap) bool {
		locks, err := exclusive.Locks(object)
		_, there := locks[uniqueName(name)]
		return err == nil && !there
	})
}

func anExclusiveVolumeWaitsForItsHolderAndThenMoves(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "move-a")
	w.node(t, "move-b")
	w.volume(t, "move", volumeOptions{})
	first := w.intent(t, "move-first", "move-a", "move")
	w.attached(t, first)
	second := w.intent(t, "move-second", "move-b", "move")
	message := w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse)
	if !strings.Contains(message, "node move-a") || !strings.Contains(message, "intent default/move-first") {
		t.Errorf("message of intent %s: %q; want the holder, intent default/move-first on node move-a", second.Name, message)
	}
	w.awaitIntentEvent(t, second, "FailedAttachVolume")
	if lock := w.lockOf(t, "move"); lock.Holder != "move-a" || lock.MovedFrom != "" || lock.Since == "" {
		t.Errorf("lock of volume move: %+v; want holder move-a", lock)
	}
	requests.reset()
	w.delete(t, first)
	w.attached(t, second)
	gone(t, w, first)
	if lock := w.lockOf(t, "move"); lock.Holder != "move-b" || lock.MovedFrom != "" {
		t.Errorf("lock of volume move: %+v; want holder move-b, and the move finished", lock)
	}
	until(t, w, stateOf("move-a"), "the first node is fenced and free", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Spec.Protocol.Fences == 1 && len(s.Spec.Attachments) == 0
	})
	if n, what := requests.writes(); n > 14 {
		t.Errorf("%d writes to move volume move, want at most 14: %s", n, what)
	}
}

// anAttachmentThatTimedOutMayHaveSucceeded: the driver was asked, and what it did is unknown.
func anAttachmentThatTimedOutMayHaveSucceeded(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "timeout-a")
	w.node(t, "timeout-b")
	w.volume(t, "timeout", volumeOptions{})
	w.volume(t, "timeout-marker", volumeOptions{})
	w.attacher.set("pv-timeout", "rpc error: code = DeadlineExceeded", false)
	first := w.intent(t, "timeout-first", "timeout-a", "timeout")
	w.reason(t, first, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachFailed)
	w.attacher.set("pv-timeout", "", true)
	w.delete(t, first)
	va := attachmentOf("timeout", "timeout-a")
	until(t, w, va, "it is to be detached", terminating)
	second := w.intent(t, "timeout-second", "timeout-b", "timeout")
	if message := w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse); !strings.Contains(message, "timeout-a") {
		t.Errorf("message of intent %s: %q; want the node that may have the volume, timeout-a", second.Name, message)
	}
	// What came later has gone through, so the second has been reconciled.
	w.attached(t, w.intent(t, "timeout-marker", "timeout-b", "timeout-marker"))
	until(t, w, attachmentOf("timeout", "timeout-b"), "it is attached nowhere else",
		func(va *storagev1.VolumeAttachment) bool { return !exists(va) })
	until(t, w, va, "the first is still there", terminating)
	w.attacher.set("pv-timeout", "", false)
	w.attached(t, second)
	gone(t, w, va)
}

func aVolumeForASinglePodRefusesASecondIntentUntilTheFirstIsGone(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "rwop-a")
	w.node(t, "rwop-b")
	w.volume(t, "rwop", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
	first := w.intent(t, "rwop-first", "rwop-a", "rwop")
	w.attached(t, first)
	second := w.intent(t, "rwop-second", "rwop-a", "rwop")
	elsewhere := w.intent(t, "rwop-third", "rwop-b", "rwop")
	for _, intent := range []*volumesv1alpha1.VolumeAttachmentIntent{second, elsewhere} {
		message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
			volumesv1alpha1.ReasonReadWriteOncePod)
		if !strings.Contains(message, "default/rwop-first") || !strings.Contains(message, "rwop-a") {
			t.Errorf("message of intent %s: %q; want the user, default/rwop-first on node rwop-a", intent.Name, message)
		}
		if intent.Status.UniqueVolumeName != "" {
			t.Errorf("status of intent %s, which is refused: volume %s; want none, or the agent would publish it", intent.Name,
				intent.Status.UniqueVolumeName)
		}
	}
	if lock := w.lockOf(t, "rwop"); lock.Holder != "rwop-a" || lock.User != userOf(first) {
		t.Errorf("lock of volume rwop: %+v; want holder rwop-a and user %s", lock, first.Name)
	}
	w.delete(t, second)
	gone(t, w, second)
	w.delete(t, first)
	w.attached(t, elsewhere)
	if lock := w.lockOf(t, "rwop"); lock.Holder != "rwop-b" || lock.User != userOf(elsewhere) {
		t.Errorf("lock of volume rwop: %+v; want holder rwop-b and user %s", lock, elsewhere.Name)
	}
}

func userOf(intent *volumesv1alpha1.VolumeAttachmentIntent) exclusive.User {
	return exclusive.User{Namespace: intent.Namespace, Name: intent.Name, UID: intent.UID}
}

// aVolumeForASinglePodPassesToTheNextIntentOnItsNode, which costs one write of the lock more than a volume for
// several intents.
func aVolumeForASinglePodPassesToTheNextIntentOnItsNode(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "pass")
	w.volume(t, "pass", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
	first := w.intent(t, "pass-first", "pass", "pass")
	until(t, w, first, "the first intent is Ready", isReady)
	second := w.intent(t, "pass-second", "pass", "pass")
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonReadWriteOncePod)
	requests.reset()
	w.delete(t, first)
	until(t, w, second, "the second intent is Ready", isReady)
	n, what := requests.writes()
	t.Log(what)
	if n > 12 {
		t.Errorf("%d writes to pass volume pass to another user, want at most 12: %s", n, what)
	}
	if lock := w.lockOf(t, "pass"); lock.Holder != "pass" || lock.User != userOf(second) {
		t.Errorf("lock of volume pass: %+v; want holder pass and user %s", lock, second.Name)
	}
	// An intent of the same name is another user.
	w.delete(t, second)
	gone(t, w, second)
	again := w.intent(t, "pass-second", "pass", "pass")
	until(t, w, again, "the intent is Ready", isReady)
	if lock := w.lockOf(t, "pass"); lock.User != userOf(again) {
		t.Errorf("lock of volume pass: %+v; want user %s", lock, again.Name)
	}
}

func aSharedVolumeIsAttachedToSeveralNodes(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "shared-a")
	w.node(t, "shared-b")
	w.volume(t, "shared", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	first := w.intent(t, "shared-first", "shared-a", "shared")
	second := w.intent(t, "shared-second", "shared-b", "shared")
	third := w.intent(t, "shared-third", "shared-b", "shared")
	w.attached(t, first)
	w.attached(t, second)
	w.attached(t, third)
	w.delete(t, second)
	gone(t, w, second)
	until(t, w, attachmentOf("shared", "shared-b"), "the attachment stays for the third",
		func(va *storagev1.VolumeAttachment) bool {
			return exists(va) && va.DeletionTimestamp == nil && va.Annotations[volumesv1alpha1.HoldAnnotation] != ""
		})
	w.attached(t, third)
	w.delete(t, third)
	gone(t, w, attachmentOf("shared", "shared-b"))
	w.attached(t, first)
}

func aVolumeWithoutAttachIsWrittenToTheNodeAtOnce(t *testing.T, w *world) {
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "direct.csi.hawser.io"},
		Spec: storagev1.CSIDriverSpec{AttachRequired: new(bool)}}
	w.create(t, driver)
	w.manage(t, managerOptions{})
	w.node(t, "direct-a")
	lock := newClaim("direct", volumeOptions{})
	w.create(t, lock)
	pv := newVolume(lock, volumeOptions{})
	pv.Spec.CSI.Driver = driver.Name
	w.create(t, pv)
	w.bind(t, lock)
	intent := w.intent(t, "direct", "direct-a", "direct")
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionTrue, volumesv1alpha1.ReasonAttachNotRequired)
	state := until(t, w, stateOf("direct-a"), "the volume is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1
	})
	if e := state.Spec.Attachments[0]; e.AttachmentUID == "" || e.AttachmentName != "" {
		t.Errorf("entry of a volume without attach: %s; want a UID and no attachment", dump(e))
	}
	until(t, w, intent, "the intent is Ready", isReady)
	w.delete(t, intent)
	gone(t, w, intent)
	until(t, w, stateOf("direct-a"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}
