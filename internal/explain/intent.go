/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// hangsAfter is how long a driver call may last before it counts as hung: longer than the agent's default limit.
const hangsAfter = 150 * time.Second

// observedWithin is how long a manager may need to reconcile an intent.
const observedWithin = 30 * time.Second

// calls are the reasons of an intent during a driver call, and after one without an answer. Those that are true for
// the latter prove by their age that a call hangs. The agent ends a call at its limit, and a step before that may have
// waited for something else, or gives many files to a group.
var calls = map[string]bool{volumesv1alpha1.ReasonStaging: false, volumesv1alpha1.ReasonPublishing: false,
	volumesv1alpha1.ReasonExpanding: false, volumesv1alpha1.ReasonOutcomeUncertain: true,
	volumesv1alpha1.ReasonCallInFlight: true}

// intentSubject explains an intent.
func (w *walk) intentSubject() {
	v := &w.f.Volumes[0]
	w.intent(v)
	w.under(func() {
		w.node(v.Node)
		if v.Intent.Value.Spec.Volume.PodVolume != nil {
			w.namedPod(v.Intent.Value)
		}
		w.volume(v, !conditionTrue(v.Intent.Value.Status.Conditions, volumesv1alpha1.ConditionReady))
	})
}

// namedPod adds the pod whose inline volume an intent attaches.
func (w *walk) namedPod(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if w.f.Pod.Err != nil {
		w.missing(w.f.Pod.Ref, w.f.Pod.Err, about{reason: volumesv1alpha1.ReasonPodNotFound,
			places: map[string]string{"intent": intent.Name, "namespace": intent.Namespace}})
		return
	}
	w.link(w.f.Pod.Ref, Good, "on node "+w.f.Pod.Value.Spec.NodeName, time.Time{})
}

// intent explains the conditions of an intent.
func (w *walk) intent(v *facts.Volume) {
	intent, ref := v.Intent.Value, v.Intent.Ref
	if w.f.FromFile && ref == w.f.Subject {
		w.link(ref, Waits, "not applied yet", time.Time{})
		w.fileIntent(v)
		return
	}
	ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready == nil || max(intent.Status.ObservedGeneration, ready.ObservedGeneration) < intent.Generation {
		w.notObserved(intent, ref)
		if ready == nil {
			return
		}
	}
	state := stateOf(ready)
	text := "Ready"
	if state != Good {
		text = fmt.Sprintf("Ready %s: %s", ready.Status, ready.Reason)
	}
	w.link(ref, state, text+", on node "+intent.Spec.NodeName, ready.LastTransitionTime.Time)
	w.intentConditions(v)
}

// notObserved names who has not reconciled the intent: the manager writes Resolved, and the agent of the node Ready.
func (w *walk) notObserved(intent *volumesv1alpha1.VolumeAttachmentIntent, ref facts.Ref) {
	reason, text := catalog.NotObserved, "not reconciled yet"
	resolved := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionResolved)
	if resolved != nil && resolved.ObservedGeneration == intent.Generation {
		reason, text = catalog.NotReported, "not reported by the agent yet"
	}
	a := about{object: ref, reason: reason, since: asked(intent),
		places: map[string]string{"node": intent.Spec.NodeName},
		detail: generations(intent.Status.ObservedGeneration, intent)}
	w.link(ref, Waits, text+", wanted on node "+intent.Spec.NodeName, a.since)
	w.find(w.recent(a))
}

// recent turns a problem into a wait if the object has changed so recently that it may still be reconciled.
func (b *builder) recent(a about) about {
	if b.f.Now.Sub(a.since) < observedWithin {
		a.level = catalog.Waiting
	}
	return a
}

func generations(observed int64, object metav1.Object) string {
	return fmt.Sprintf("generation %d was observed, %d is present", observed, object.GetGeneration())
}

// asked is when the present generation of an object was written.
func asked(object metav1.Object) time.Time {
	last := object.GetCreationTimestamp().Time
	for _, later := range []time.Time{ptr.Deref(object.GetDeletionTimestamp(), metav1.Time{}).Time,
		Written(object.GetManagedFields(), `"f:spec"`)} {
		if later.After(last) {
			last = later
		}
	}
	return last
}

// stateOf is the state of a link whose condition is positive.
func stateOf(c *metav1.Condition) State {
	switch {
	case c.Status == metav1.ConditionTrue:
		return Good
	case catalog.OfReason(c.Reason).Level != catalog.Problem:
		return Waits
	default:
		return Bad
	}
}

// intentConditions reports each condition of an intent that is not as it should be. Ready repeats the reason of
// another one, as a rule, and is then not reported twice.
func (w *walk) intentConditions(v *facts.Volume) {
	conditions := v.Intent.Value.Status.Conditions
	reported := map[string]bool{}
	for i := range conditions {
		c := &conditions[i]
		if c.Type == volumesv1alpha1.ConditionReady || Healthy(c) || !begun(conditions, c) {
			continue
		}
		reported[c.Reason] = true
		w.intentCondition(v, c)
	}
	ready := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionReady)
	explained := ready != nil && ready.Reason == volumesv1alpha1.ReasonReleasing && w.report.found(v.Intent.Ref)
	if ready != nil && !Healthy(ready) && !reported[ready.Reason] && !explained {
		w.intentCondition(v, ready)
	}
	if intent := v.Intent.Value; intent.DeletionTimestamp != nil && !w.report.found(v.Intent.Ref) {
		w.find(about{object: v.Intent.Ref, reason: volumesv1alpha1.ReasonReleasing, places: w.intentPlaces(v),
			since: intent.DeletionTimestamp.Time})
	}
}

// steps of an intent, in their order.
var steps = []string{volumesv1alpha1.ConditionResolved, volumesv1alpha1.ConditionAttached,
	volumesv1alpha1.ConditionStaged, volumesv1alpha1.ConditionPublished}

// waitReasons are those of a step that may only wait for one before it.
var waitReasons = []string{volumesv1alpha1.ReasonDetached, volumesv1alpha1.ReasonStaging,
	volumesv1alpha1.ReasonPublishing}

// begun is false for a step that only waits for one before it.
func begun(conditions []metav1.Condition, c *metav1.Condition) bool {
	if !slices.Contains(waitReasons, c.Reason) {
		return true
	}
	return !slices.ContainsFunc(steps[:max(0, slices.Index(steps, c.Type))], func(earlier string) bool {
		before := meta.FindStatusCondition(conditions, earlier)
		return before != nil && !Healthy(before)
	})
}

func (w *walk) intentCondition(v *facts.Volume, c *metav1.Condition) {
	intent := v.Intent.Value
	a := about{object: v.Intent.Ref, reason: c.Reason, since: c.LastTransitionTime.Time,
		detail: join(c.Message, lastError(intent, c)), places: w.intentPlaces(v)}
	if intent.DeletionTimestamp != nil &&
		(c.Type == volumesv1alpha1.ConditionStalled || c.Type == volumesv1alpha1.ConditionResolved) {
		a.level = catalog.Note // it only has to be released
	}
	a = w.unlessSilent(unlessBusy(a), intent)
	if a = w.unlessRefuted(a, intent.Spec.NodeName, v); a.reason == catalog.Outdated {
		w.find(a)
		return
	}
	if c.Type == volumesv1alpha1.ConditionStalled {
		w.find(a)
		a.reason, a.detail = catalog.Stalled, "because of "+c.Reason
	}
	if c.Type == volumesv1alpha1.ConditionExpanded && w.f.Subject.Kind == facts.KindPod {
		a.level = catalog.Note // an expansion keeps no pod from starting
	}
	if ofAge, call := calls[c.Reason]; call && (ofAge && w.f.Now.Sub(a.since) > hangsAfter || timedOut(intent)) {
		hung := a
		hung.reason = catalog.CallTimedOut
		w.find(hung)
	}
	w.find(a)
}

// unlessSilent distinguishes an intent on which the agent has not reported although the volume has been attached for
// long. It has nothing to wait for then.
func (w *walk) unlessSilent(a about, intent *volumesv1alpha1.VolumeAttachmentIntent) about {
	attached := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	if a.reason == volumesv1alpha1.ReasonProgressing && attached != nil && Healthy(attached) &&
		w.f.Now.Sub(attached.LastTransitionTime.Time) > patience {
		a.reason, a.since = catalog.NotReported, attached.LastTransitionTime.Time
	}
	return a
}

// lastError is the error of the driver, unless the condition has it already.
func lastError(intent *volumesv1alpha1.VolumeAttachmentIntent, c *metav1.Condition) string {
	e := intent.Status.LastError
	if e == nil || e.Message == "" || c.Message == e.Message {
		return ""
	}
	return fmt.Sprintf("%s failed %d times, %s", e.Operation, max(1, e.Attempts), join(e.Code, e.Message))
}

func timedOut(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	e := intent.Status.LastError
	return e != nil && e.Code == "DeadlineExceeded"
}

func (w *walk) intentPlaces(v *facts.Volume) map[string]string {
	intent := v.Intent.Value
	places := map[string]string{"node": intent.Spec.NodeName, "driver": v.Driver,
		"volume":     cmp.Or(intent.Status.VolumeName, v.Volume.Ref.Name),
		"attachment": v.Attachment.Ref.Name}
	if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil {
		places["claim"] = source.ClaimName
	}
	if n, known := w.f.NodeOf(intent.Spec.NodeName); known && n.State.Found {
		places["uid"] = string(attachmentUID(n.State.Value, v.UniqueName))
	}
	return places
}

// Healthy reports whether a condition needs no action.
func Healthy(c *metav1.Condition) bool {
	bad := c.Type == volumesv1alpha1.ConditionStalled || c.Type == volumesv1alpha1.ConditionProgressing ||
		c.Type == volumesv1alpha1.ConditionDegraded
	return (c.Status == metav1.ConditionTrue) != bad
}

func conditionTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}
