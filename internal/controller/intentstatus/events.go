/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/status"
)

// Reasons of events, as upstream has them.
const (
	EventFailedAttach     = "FailedAttachVolume"
	EventSuccessfulAttach = "SuccessfulAttachVolume"
)

const (
	// firstReminder and longestReminder bound how long after an event the same is reported again. An event is forgotten
	// after an hour, and its recorder counts repetitions as one event while no more than six minutes pass between them.
	firstReminder   = 30 * time.Second
	longestReminder = 5 * time.Minute
)

// told is what was last reported of an intent that waits.
type told struct {
	// version of the intent at which it was first reported. The recorder counts the repetitions of an event as long as the
	// version is the same; a new message needs another one, because the recorder does not compare messages.
	version string
	at      time.Time
	// again after this time.
	again time.Duration
}

// EventNodeDeletion is the reason of the event that says that an intent goes with its Node.
const EventNodeDeletion = "ReleasedOnNodeDeletion"

// LeavesWithNode records that the intent was deleted because its Node leaves.
func (r *Reporter) LeavesWithNode(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	r.event(intent, intent.ResourceVersion, corev1.EventTypeNormal, EventNodeDeletion, "Release", fmt.Sprintf(
		"node %s is being deleted or is gone: the intent is deleted, as its onNodeDeletion is Release", intent.Spec.NodeName))
}

// tell records events for changes.
func (r *Reporter) tell(before, after *volumesv1alpha1.VolumeAttachmentIntent) {
	if c := turned(before, after, volumesv1alpha1.ConditionResolved); c != nil &&
		(c.Status == metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonResolved) {
		r.event(after, after.ResourceVersion, corev1.EventTypeWarning, c.Reason, "Resolve", c.Message)
	}
	key := client.ObjectKeyFromObject(after)
	c := turned(before, after, volumesv1alpha1.ConditionAttached)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		r.told.Delete(key)
		if newsworthy(before) {
			r.event(after, after.ResourceVersion, corev1.EventTypeNormal, EventSuccessfulAttach, "Attach",
				"volume "+after.Status.VolumeName+": "+c.Message)
		}
	case c != nil && underWay(c.Reason):
		r.told.Delete(key)
	case c != nil:
		r.told.Store(key, told{version: after.ResourceVersion, at: r.Clock.Now(), again: firstReminder})
		r.failed(after, after.ResourceVersion, c)
	case failedAgain(before, after):
		t, _ := r.lastTold(after)
		r.repeat(after, t, meta.FindStatusCondition(after.Status.Conditions, volumesv1alpha1.ConditionAttached))
	}
}

// newsworthy reports whether it is worth an event that the intent's volume is attached. A reader of a pod has nothing
// else to go by; an intent shows it itself, and needs no event unless an earlier one said that something was wrong.
func newsworthy(before *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if _, _, ofPod := index.PodOf(before); ofPod {
		return true
	}
	was := meta.FindStatusCondition(before.Status.Conditions, volumesv1alpha1.ConditionAttached)
	return was != nil && !underWay(was.Reason) || meta.IsStatusConditionFalse(
		before.Status.Conditions, volumesv1alpha1.ConditionResolved,
	)
}

// underWay: nothing is wrong, it is not there yet.
func underWay(reason string) bool {
	switch reason {
	case volumesv1alpha1.ReasonAttaching, volumesv1alpha1.ReasonDetaching, volumesv1alpha1.ReasonDetached:
		return true
	}
	return false
}

// Remind reports again what an intent waits for, at growing intervals, and returns when that is due next; zero when
// nothing is to be reported, or when the intent does not say so yet.
func (r *Reporter) Remind(cached *volumesv1alpha1.VolumeAttachmentIntent, reason, message string) time.Duration {
	c := meta.FindStatusCondition(cached.Status.Conditions, volumesv1alpha1.ConditionAttached)
	if c == nil || c.Status == metav1.ConditionTrue || underWay(c.Reason) || c.Reason != reason || c.Message != message {
		return 0
	}
	t, known := r.lastTold(cached)
	if left := t.again - r.Clock.Since(t.at); known && left > 0 {
		return left
	}
	if !known {
		// An earlier process has reported it.
		r.told.Store(client.ObjectKeyFromObject(cached), t)
		return t.again
	}
	t.again = min(2*t.again, longestReminder)
	r.repeat(cached, t, c)
	return t.again
}

func (r *Reporter) lastTold(intent *volumesv1alpha1.VolumeAttachmentIntent) (told, bool) {
	if t, known := r.told.Load(client.ObjectKeyFromObject(intent)); known {
		return t.(told), true
	}
	return told{version: intent.ResourceVersion, at: r.Clock.Now(), again: firstReminder}, false
}

func (r *Reporter) repeat(intent *volumesv1alpha1.VolumeAttachmentIntent, t told, c *metav1.Condition) {
	t.at = r.Clock.Now()
	r.told.Store(client.ObjectKeyFromObject(intent), t)
	r.failed(intent, t.version, c)
}

func (r *Reporter) failed(intent *volumesv1alpha1.VolumeAttachmentIntent, version string, c *metav1.Condition) {
	r.event(intent, version, corev1.EventTypeWarning, EventFailedAttach, "Attach", c.Reason+": "+c.Message)
}

// event records one on the pod, where the intent was made for one, otherwise on the intent. It never waits: the
// recorder sends events by itself and drops what it cannot send.
func (r *Reporter) event(
	intent *volumesv1alpha1.VolumeAttachmentIntent, version, eventType, reason, action, note string,
) {
	self := &corev1.ObjectReference{
		APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "VolumeAttachmentIntent",
		Namespace: intent.Namespace, Name: intent.Name, UID: intent.UID, ResourceVersion: version,
	}
	var regarding, related runtime.Object = self, nil
	if pod, uid, ok := index.PodOf(intent); ok {
		regarding, related = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: intent.Namespace, Name: pod, UID: uid,
		}, self
	}
	r.Events.Eventf(regarding, related, eventType, reason, action, "%s", status.ShortenNote(note))
}

// turned returns the condition of that type if its status, reason or message changed.
func turned(before, after *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) *metav1.Condition {
	is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
	was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	return is
}

// failedAgain reports whether the driver's attacher has failed once more in the same way.
func failedAgain(before, after *volumesv1alpha1.VolumeAttachmentIntent) bool {
	was, is := before.Status.LastError, after.Status.LastError
	return is != nil && (is.Operation == OperationAttach || is.Operation == OperationDetach) &&
		meta.IsStatusConditionFalse(after.Status.Conditions, volumesv1alpha1.ConditionAttached) &&
		(was == nil || was.Operation != is.Operation || was.Attempts != is.Attempts)
}
