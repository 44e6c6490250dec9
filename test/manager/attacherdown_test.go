/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/attachment"
)

// expectFewWrites attaches and detaches another volume meanwhile. It fails if the manager wrote more than that needs
// and `some`.
func (w *world) expectFewWrites(t *testing.T, requests *requestCounter, name, node string, some int) {
	t.Helper()
	w.attachAndRelease(t, name, node)
	if n, what := requests.writes(); n > 13+some {
		t.Errorf("%d writes while volume %s waits, want at most %d: %s", n, name, 13+some, what)
	}
}

func terminating(va *storagev1.VolumeAttachment) bool { return va.DeletionTimestamp != nil }

func theManagerWaitsForAnAttacherThatIsDown(t *testing.T, w *world, mode controller.AttachMode) {
	name := "down-" + strings.ToLower(string(mode))
	a, b := name+"-a", name+"-b"
	w.managedNode(t, a)
	w.managedNode(t, b)
	w.volume(t, name, volumeOptions{})
	requests, stop := w.manage(t, managerOptions{attachMode: mode})
	defer stop()
	w.attacher.set("pv-"+name, "", true)
	first := w.wantAttached(t, mode, name, name, a)
	if message := first.awaitCondition(t, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttaching); !strings.Contains(message, attachmentOf(name, a).Name) {
		t.Errorf("message on volume %s: %q; want the attachment that it waits for", name, message)
	}
	requests.reset()
	w.expectFewWrites(t, requests, name+"-meanwhile", a, 0)
	w.attacher.set("pv-"+name, "", false)
	first.awaitAttached(t)

	w.attacher.set("pv-"+name, "", true)
	first.drop(t)
	until(t, w, attachmentOf(name, a), "it is being detached", terminating)
	second := w.wantAttached(t, mode, name+"-second", name, b)
	if message := second.awaitCondition(t, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse); !strings.Contains(message, a) {
		t.Errorf("message on volume %s: %q; want the node that has it, %s", name, message, a)
	}
	requests.reset()
	w.expectFewWrites(t, requests, name+"-again", a, 0)
	w.attacher.set("pv-"+name, "", false)
	second.awaitAttached(t)
	first.awaitDetached(t)
	second.drop(t)
	second.awaitDetached(t)
}

// aFailedDetachIsReportedWhereItIsWaitedFor: on the node's state, and never twice.
func aFailedDetachIsReportedWhereItIsWaitedFor(t *testing.T, w *world, mode controller.AttachMode) {
	name := "fails-" + strings.ToLower(string(mode))
	w.managedNode(t, name)
	w.volume(t, name, volumeOptions{})
	requests, stop := w.manage(t, managerOptions{attachMode: mode})
	defer stop()
	w.attacher.set("pv-"+name, "the array is on fire", false)
	x := w.wantAttached(t, mode, name, name, name)
	if message := x.awaitCondition(t, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttachFailed); !strings.Contains(message, "the array is on fire") {
		t.Errorf("message on volume %s: %q; want the attacher's error", name, message)
	}
	if x.pod != nil {
		w.podEvent(t, x.pod, "FailedAttachVolume", "the array is on fire")
	}
	requests.reset()
	const failures = 5
	va := until(t, w, attachmentOf(name, name), "it failed", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.AttachError != nil
	})
	for i := range failures {
		w.changeStatus(t, va, func() {
			va.Status.AttachError.Time = metav1.NewTime(va.Status.AttachError.Time.Add(3 * time.Second))
		})
		until(t, w, x.intent, "the failure is counted", func(in *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return in.Status.LastError != nil && in.Status.LastError.Attempts == int32(i)+2
		})
	}
	w.expectFewWrites(t, requests, name+"-meanwhile", name, failures)
	w.attacher.set("pv-"+name, "", false)
	x.awaitAttached(t)

	w.attacher.set("pv-"+name, "", true)
	x.drop(t)
	until(t, w, va, "it is being detached", terminating)
	requests.reset()
	for range failures {
		w.changeStatus(t, va, func() {
			va.Status.DetachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "the array is still on fire"}
		})
	}
	until(t, w, stateOf(name), "the node's state says why not", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, name).DetachError == "the array is still on fire"
	})
	if note := w.awaitEvent(t, name, attachment.EventFailedDetach); !strings.Contains(note, va.Name) {
		t.Errorf("event of node state %s: %q; want it to name attachment %s", name, note, va.Name)
	}
	// The node state shows the detach that fails in its entry and in a condition.
	w.expectFewWrites(t, requests, name+"-again", name, 2)
	w.attacher.set("pv-"+name, "", false)
	x.awaitDetached(t)
}
