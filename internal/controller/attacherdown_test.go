/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

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

// quietly lets another volume live meanwhile, and says so if the manager wrote more than that takes and some.
func (w *world) quietly(t *testing.T, requests *counter, name, node string, some int) {
	t.Helper()
	w.life(t, name, node)
	if n, what := requests.writes(); n > 13+some {
		t.Errorf("%d writes while nothing could be done: %s", n, what)
	}
}

func terminating(va *storagev1.VolumeAttachment) bool { return va.DeletionTimestamp != nil }

func anAttacherThatIsDownIsWaitedFor(t *testing.T, w *world, mode controller.AttachMode) {
	name := "down-" + strings.ToLower(string(mode))
	a, b := name+"-a", name+"-b"
	w.managedNode(t, a)
	w.managedNode(t, b)
	w.volume(t, name, volumeOptions{})
	requests, stop := w.manage(t, managerOptions{attachMode: mode})
	defer stop()
	w.attacher.set("pv-"+name, "", true)
	first := w.want(t, mode, name, name, a)
	if said := first.says(t, metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching); !strings.Contains(said, attachmentOf(name, a).Name) {
		t.Errorf("it does not say what it waits for: %s", said)
	}
	requests.reset()
	w.quietly(t, requests, name+"-meanwhile", a, 0)
	w.attacher.set("pv-"+name, "", false)
	first.comes(t)

	w.attacher.set("pv-"+name, "", true)
	first.drop(t)
	until(t, w, attachmentOf(name, a), "it is being detached", terminating)
	second := w.want(t, mode, name+"-second", name, b)
	if said := second.says(t, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse); !strings.Contains(said, a) {
		t.Errorf("it does not say where the volume is: %s", said)
	}
	requests.reset()
	w.quietly(t, requests, name+"-again", a, 0)
	w.attacher.set("pv-"+name, "", false)
	second.comes(t)
	first.leaves(t)
	second.drop(t)
	second.leaves(t)
}

// anAttacherThatFailsToDetachIsTold on the node, and never twice.
func anAttacherThatFailsToDetachIsTold(t *testing.T, w *world, mode controller.AttachMode) {
	name := "fails-" + strings.ToLower(string(mode))
	w.managedNode(t, name)
	w.volume(t, name, volumeOptions{})
	requests, stop := w.manage(t, managerOptions{attachMode: mode})
	defer stop()
	w.attacher.set("pv-"+name, "the array is on fire", false)
	x := w.want(t, mode, name, name, name)
	if said := x.says(t, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachFailed); !strings.Contains(said, "the array is on fire") {
		t.Errorf("message: %s", said)
	}
	if x.pod != nil {
		w.podEvent(t, x.pod, "FailedAttachVolume", "the array is on fire")
	}
	requests.reset()
	const failures = 5
	va := until(t, w, attachmentOf(name, name), "it failed", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	for i := range failures {
		w.changeStatus(t, va, func() { va.Status.AttachError.Time = metav1.NewTime(va.Status.AttachError.Time.Add(3 * time.Second)) })
		until(t, w, x.intent, "the failure is counted", func(in *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return in.Status.LastError != nil && in.Status.LastError.Attempts == int32(i)+2
		})
	}
	w.quietly(t, requests, name+"-meanwhile", name, failures)
	w.attacher.set("pv-"+name, "", false)
	x.comes(t)

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
	if note := w.told(t, name, attachment.EventFailedDetach); !strings.Contains(note, va.Name) {
		t.Errorf("event: %s", note)
	}
	w.quietly(t, requests, name+"-again", name, 1)
	w.attacher.set("pv-"+name, "", false)
	x.leaves(t)
}
