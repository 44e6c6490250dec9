/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// awaitIntentEvent waits until an event of this reason is recorded for the intent.
func (w *world) awaitIntentEvent(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watcher, err := w.client.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(intent.Namespace))
	if err != nil {
		t.Fatalf("watching events: %v", err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			t.Fatalf("no event %s of intent %s within %s, want one", reason, intent.Name, patience)
		case e, open := <-watcher.ResultChan():
			if !open {
				t.Fatalf("the watch of events ended without %s of intent %s, want it", reason, intent.Name)
			}
			if event, ok := e.Object.(*eventsv1.Event); ok && event.Regarding.UID == intent.UID && event.Reason == reason {
				return
			}
		}
	}
}

func aFailureOfTheAttacherIsReportedAndRetried(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "failing-a")
	w.attacher.set("pv-failing", "the array is on fire", false)
	w.volume(t, "failing", volumeOptions{})
	intent := w.intent(t, "failing", "failing-a", "failing")
	message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttachFailed)
	if !strings.Contains(message, "the array is on fire") {
		t.Errorf("message of intent %s: %q; want the attacher's error", intent.Name, message)
	}
	e := intent.Status.LastError
	if e == nil || e.Operation != "attach" || e.Code != "Internal" || e.Attempts != 1 || e.NextAttemptTime == nil ||
		e.Message != "the array is on fire" {
		t.Errorf("lastError of intent %s: %s; want the attacher's error, attempted once", intent.Name, dump(e))
	}
	ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready == nil || ready.Reason != volumesv1alpha1.ReasonAttachFailed {
		t.Errorf("Ready of intent %s: %s; want reason %s", intent.Name, dump(ready), volumesv1alpha1.ReasonAttachFailed)
	}
	w.awaitIntentEvent(t, intent, "FailedAttachVolume")
	// The attacher fails once more, and then no more.
	va := attachmentOf("failing", "failing-a")
	w.changeStatus(t, va, func() { va.Status.AttachError.Time = metav1.NewTime(va.Status.AttachError.Time.Add(3e9)) })
	until(t, w, intent, "the second failure is counted", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.LastError != nil && i.Status.LastError.Attempts == 2
	})
	w.attacher.set("pv-failing", "", false)
	w.attached(t, intent)
	if intent.Status.LastError != nil {
		t.Errorf("lastError of intent %s after the attach: %s; want none", intent.Name, dump(intent.Status.LastError))
	}
	w.awaitIntentEvent(t, intent, "SuccessfulAttachVolume")
}

func aSlowAttachIsReportedAfterAWhile(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "slow-a")
	w.attacher.set("pv-slow", "", true)
	w.volume(t, "slow", volumeOptions{})
	intent := w.intent(t, "slow", "slow-a", "slow")
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching)
	if intent.Status.UniqueVolumeName == "" || intent.Status.Timeline.Requested == nil {
		t.Errorf("status of intent %s: %s; want the volume's name and the time of the request", intent.Name,
			dump(intent.Status))
	}
	w.attacher.set("pv-slow", "", false)
	w.attached(t, intent)
	if intent.Status.Timeline.Attached.Before(intent.Status.Timeline.Requested) {
		t.Errorf("timeline of intent %s: %s; want Attached after Requested", intent.Name, dump(intent.Status.Timeline))
	}
}

func aVolumeThatTheAgentCannotReleaseStaysAttached(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "kept")
	w.volume(t, "kept", volumeOptions{})
	w.volume(t, "kept-marker", volumeOptions{})
	intent := w.intent(t, "kept", "kept", "kept")
	until(t, w, intent, "the intent is Ready", isReady)
	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	// What came later has gone through, so this one has been reconciled.
	w.attached(t, w.intent(t, "kept-marker", "kept", "kept-marker"))
	until(t, w, attachmentOf("kept", "kept"), "the attachment stays and is held", held)
	until(t, w, intent, "the intent stays", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return exists(i) && i.DeletionTimestamp != nil
	})
	a.set(func() { a.hangs = false })
	gone(t, w, intent)
	gone(t, w, attachmentOf("kept", "kept"))
}

func twoIntentsOnOneNodeAreReleasedOneByOne(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "two")
	w.volume(t, "two", volumeOptions{})
	published := w.intent(t, "two-published", "two", "two")
	attached := newIntent("two-attached", "two", "two")
	setOnlyAttached(attached)
	w.create(t, attached)
	until(t, w, published, "the first intent is Ready", isReady)
	until(t, w, attached, "the second intent is Ready", isReady)
	w.delete(t, published)
	gone(t, w, published)
	until(t, w, attachmentOf("two", "two"), "the attachment stays", held)
	w.delete(t, attached)
	gone(t, w, attached)
	gone(t, w, attachmentOf("two", "two"))
}

func aHundredVolumesAtOnceShareTheWritesOfTheirNode(t *testing.T, w *world) {
	const volumes = 100
	// Its clock does not advance, so that a slow machine does not make agents seem dead, or attachments worth a word
	// before they are there.
	requests, _ := w.manage(t, managerOptions{clock: testingclock.NewFakePassiveClock(time.Now())})
	w.node(t, "many-a")
	until(t, w, stateOf("many-a"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID == s.UID
	})
	for i := range volumes {
		w.volume(t, fmt.Sprintf("many-%d", i), volumeOptions{})
	}
	requests.reset()
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range volumes {
		name := fmt.Sprintf("many-%d", i)
		intents = append(intents, w.intent(t, name, "many-a", name))
	}
	for _, intent := range intents {
		w.attached(t, intent)
	}
	n, what := requests.writes()
	t.Logf("attach: %.2f writes for each volume: %s", float64(n)/volumes, what)
	if n > 480 {
		t.Errorf("%d writes to attach %d volumes, want at most 480: %s", n, volumes, what)
	}
	for _, intent := range intents {
		until(t, w, intent, "the intent is Ready", isReady)
	}
	requests.reset()
	for _, intent := range intents {
		w.delete(t, intent)
	}
	for i, intent := range intents {
		gone(t, w, intent)
		gone(t, w, attachmentOf(fmt.Sprintf("many-%d", i), "many-a"))
	}
	until(t, w, stateOf("many-a"), "the node is empty", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
	n, what = requests.writes()
	t.Logf("detach: %.2f writes for each volume: %s", float64(n)/volumes, what)
	if n > 300 {
		t.Errorf("%d writes to detach %d volumes, want at most 300: %s", n, volumes, what)
	}
}

func anAttachmentThatAnotherClientDeletesIsCreatedAgain(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "lost-a")
	w.volume(t, "lost", volumeOptions{})
	intent := w.intent(t, "lost", "lost-a", "lost")
	w.attached(t, intent)
	va := attachmentOf("lost", "lost-a")
	until(t, w, va, "the attachment is there", exists)
	until(t, w, stateOf("lost-a"), "the volume is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1
	})
	old := va.UID
	w.delete(t, va)
	until(t, w, stateOf("lost-a"), "another attachment is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1 && s.Status.Volumes[0].AttachmentUID != old && len(s.Spec.Attachments) == 1 &&
			s.Spec.Attachments[0].AttachmentUID != old
	})
	w.attached(t, intent)
}
