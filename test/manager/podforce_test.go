/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// podOnDeadNode makes a pod whose volume the kubelet has mounted, lets its machine die, deletes the pod and makes
// another that wants the volume elsewhere. It returns the other, and its intent.
func (w *world) podOnDeadNode(
	t *testing.T, name string, died time.Time,
) (*corev1.Pod, *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	a := w.managedNode(t, name)
	w.managedNode(t, name+"-other")
	w.volume(t, name, volumeOptions{})
	p := w.pod(t, name, name, name)
	w.listed(t, name, name)
	w.kubeletUses(t, name, name)
	a.set(func() { a.mounted = map[string]bool{uniqueName(name): true} })
	until(t, w, stateOf(name), "the agent sees the mount", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.NodeOf(nvs, uniqueName(name)).Use.InUse
	})
	a.stop()
	w.setReady(t, name, corev1.ConditionUnknown, died)
	w.kill(t, p)
	next := w.pod(t, name+"-next", name+"-other", name)
	intent := w.podIntents(t, next, name)[0]
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	return next, intent
}

func aPodsVolumeIsForcedAwayAfterTheTimeForPods(t *testing.T, w *world) {
	c, died := newStepClock(), time.Now()
	o := replace
	o.clock, o.forceDetachAfter = c, 6*time.Minute
	_, stop := w.manage(t, o)
	defer stop()
	next, intent := w.podOnDeadNode(t, "hasty", died)
	w.watched(t, "hasty", died, 0)
	for m := time.Minute; m <= 5*time.Minute; m += time.Minute {
		w.advance(t, c, "hasty", time.Minute)
		w.watched(t, "hasty", died, m)
	}
	w.stillThere(t, "hasty", "hasty")
	w.listed(t, "hasty", "hasty")
	w.advance(t, c, "hasty", time.Minute)
	w.notListed(t, "hasty", "hasty")
	if e := w.entryState(t, "hasty", "hasty",
		volumesv1alpha1.AttachmentDetaching).Evidence; e.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("evidence of the detach of volume hasty: %s; want ForcedAfterTimeout", dump(e))
	}
	w.attached(t, intent)
	w.listed(t, "hasty-other", "hasty")
	w.kill(t, next)
	gone(t, w, attachmentOf("hasty", "hasty-other"))
	gone(t, w, intent) // no agent runs there when this scenario is over
}

func withoutATimeForPodsNoVolumeIsForcedAway(t *testing.T, w *world) {
	c := newStepClock()
	o := replace
	o.clock = c
	_, stop := w.manage(t, o)
	defer stop()
	next, intent := w.podOnDeadNode(t, "patient", time.Now())
	w.advance(t, c, "patient", time.Hour)
	// A second volume's whole life is time enough for the first one's detach.
	w.volume(t, "patient-2", volumeOptions{})
	p := w.pod(t, "patient-2", "patient-other", "patient-2")
	w.listed(t, "patient-other", "patient-2")
	w.kill(t, p)
	gone(t, w, attachmentOf("patient-2", "patient-other"))
	w.stillThere(t, "patient", "patient")
	if s := until(t, w, stateOf("patient"), "the state is there", exists); s.Status.Node.Unready != nil {
		t.Errorf("time measured in node state patient without a policy: %s; want none", dump(s.Status.Node.Unready))
	}
	w.listed(t, "patient", "patient")
	w.entryState(t, "patient", "patient", volumesv1alpha1.AttachmentAttached)
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.kill(t, next)
}
