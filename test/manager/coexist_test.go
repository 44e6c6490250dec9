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
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func held(va *storagev1.VolumeAttachment) bool {
	return exists(va) && va.DeletionTimestamp == nil && va.Annotations[volumesv1alpha1.HoldAnnotation] != ""
}

func released(va *storagev1.VolumeAttachment) bool {
	return exists(va) && va.DeletionTimestamp == nil && va.Annotations[volumesv1alpha1.HoldAnnotation] == ""
}

// upstreamAttachment is what the attach/detach controller makes for a pod.
func upstreamAttachment(name, claim, node string) *storagev1.VolumeAttachment {
	va := attachmentOf(claim, node)
	if name != "" {
		va.Name = name
	}
	va.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: driverName, NodeName: node,
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-" + claim)},
	}
	return va
}

func anAttachmentOfUpstreamIsSharedUnderAHold(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "share")
	w.volume(t, "share", volumeOptions{})
	va := upstreamAttachment("", "share", "share")
	w.create(t, va)
	until(t, w, va, "upstream's attachment is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
	uid := va.UID
	intent := w.intent(t, "share", "share", "share")
	w.attached(t, intent)
	until(t, w, va, "it is held", held)
	if va.UID != uid {
		t.Errorf("attachment %s has UID %s, want that of upstream's, %s", va.Name, va.UID, uid)
	}
	w.delete(t, intent)
	gone(t, w, va)
}

func anAttachmentUnderAnotherNameIsSharedToo(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "named")
	w.volume(t, "named", volumeOptions{})
	va := upstreamAttachment("somebody-elses", "named", "named")
	w.create(t, va)
	intent := w.intent(t, "named", "named", "named")
	w.attached(t, intent)
	until(t, w, va, "it is held", held)
	until(t, w, attachmentOf("named", "named"), "there is no second one", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va)
	})
}

func aVolumeThatPodsUseIsReleasedButNotDetached(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "pods")
	w.volume(t, "pods", volumeOptions{})
	intent := w.intent(t, "pods", "pods", "pods")
	until(t, w, intent, "the intent is Ready", isReady)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pods"},
		Spec: corev1.PodSpec{
			NodeName: "pods", Containers: []corev1.Container{{Name: "c", Image: "i"}},
			TerminationGracePeriodSeconds: ptr.To[int64](0), AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pods"},
			}}},
		},
	}
	w.create(t, pod)
	w.delete(t, intent)
	gone(t, w, intent)
	until(t, w, attachmentOf("pods", "pods"), "the pod keeps its attachment", held)
	w.delete(t, pod)
	gone(t, w, attachmentOf("pods", "pods"))
}

func aVolumeInTheNodesListIsLeftToUpstream(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "lists")
	w.volume(t, "lists", volumeOptions{})
	intent := w.intent(t, "lists", "lists", "lists")
	until(t, w, intent, "the intent is Ready", isReady)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lists"}}
	w.changeStatus(t, node, func() {
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(uniqueName("lists"))}
	})
	w.delete(t, intent)
	gone(t, w, intent)
	until(t, w, attachmentOf("lists", "lists"), "the hold is off, the attachment stays", released)
	w.changeStatus(t, node, func() { node.Status.VolumesInUse = nil })
	gone(t, w, attachmentOf("lists", "lists"))
}

func anExclusiveVolumeThatAPodUsesElsewhereIsWaitedFor(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "foreign-a")
	w.node(t, "foreign-b")
	w.volume(t, "foreign", volumeOptions{})
	va := upstreamAttachment("", "foreign", "foreign-a")
	w.create(t, va)
	intent := w.intent(t, "foreign", "foreign-b", "foreign")
	message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse)
	if message == "" {
		t.Errorf("Attached of intent %s has no message; want what it waits for", intent.Name)
	}
	until(t, w, va, "upstream's attachment is not touched", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil && va.Annotations[volumesv1alpha1.HoldAnnotation] == ""
	})
	w.delete(t, va)
	w.attached(t, intent)
}
