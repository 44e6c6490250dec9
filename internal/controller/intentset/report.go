/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintentsets/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// report writes the status if it changed, and an event for a problem that is new.
func (c *Controller) report(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntentSet, o outcome) error {
	set := cached.DeepCopy()
	s := &set.Status
	s.ObservedGeneration, s.Revision = set.Generation, o.revision
	s.Desired, s.Current, s.Updated, s.Ready, s.Failing = o.desired, o.current, o.updated, o.ready, o.failing
	condition := o.condition()
	before := meta.FindStatusCondition(cached.Status.Conditions, volumesv1alpha1.ConditionReady)
	if before != nil && before.Reason == volumesv1alpha1.ReasonIntentRefused && before.Reason == condition.Reason &&
		cached.Status.Failing == o.failing {
		condition.Message = before.Message // each pass tries others; which one is named does not matter
	}
	c.set(set, volumesv1alpha1.ConditionReady, condition)
	if stalled := o.stall(); stalled != nil {
		c.set(set, volumesv1alpha1.ConditionStalled, *stalled)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, volumesv1alpha1.ConditionStalled)
	}
	if labelled := c.labeller.condition(set); labelled != nil {
		c.set(set, volumesv1alpha1.ConditionNodesLabelled, *labelled)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, volumesv1alpha1.ConditionNodesLabelled)
	}
	if equality.Semantic.DeepEqual(cached.Status, set.Status) {
		return nil
	}
	err := c.Client.Status().Update(ctx, set)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("updating the status of set %s/%s: %w", set.Namespace, set.Name, err)
	}
	c.sendEvents(cached, set)
	return nil
}

func (c *Controller) set(set *volumesv1alpha1.VolumeAttachmentIntentSet, conditionType string, v metav1.Condition) {
	v.Type, v.ObservedGeneration = conditionType, set.Generation
	v.LastTransitionTime.Time = c.Clock.Now()
	v.Message = status.Shorten(v.Message, volumesv1alpha1.MaxConditionMessageLength)
	meta.SetStatusCondition(&set.Status.Conditions, v)
}

// sendEvents records an event for each condition that has a new problem.
func (c *Controller) sendEvents(before, after *volumesv1alpha1.VolumeAttachmentIntentSet) {
	for _, conditionType := range []string{volumesv1alpha1.ConditionReady, volumesv1alpha1.ConditionNodesLabelled} {
		was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
		is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
		if is == nil || was != nil && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		switch is.Reason {
		case volumesv1alpha1.ReasonNameTaken, volumesv1alpha1.ReasonIntentRefused, volumesv1alpha1.ReasonIntentsFailing,
			volumesv1alpha1.ReasonSelectorInvalid, volumesv1alpha1.ReasonLabelTooLong, volumesv1alpha1.ReasonNodesForbidden,
			volumesv1alpha1.ReasonLabelRefused, volumesv1alpha1.ReasonTooManyLabels:
			c.Events.Eventf(&corev1.ObjectReference{
				APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "VolumeAttachmentIntentSet",
				Namespace: after.Namespace, Name: after.Name, UID: after.UID, ResourceVersion: after.ResourceVersion,
			}, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", status.ShortenNote(is.Message))
		}
	}
}

// condition is Ready.
func (o outcome) condition() metav1.Condition {
	is := func(value metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Status: value, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(o.problems) > 0:
		p := slices.MinFunc(o.problems, inReport)
		return is(metav1.ConditionFalse, p.reason, "%s%s", p.message, more(len(o.problems)))
	case o.stalled != nil:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonIntentsFailing, "%s%s", describe(o.stalled),
			more(int(o.failing)))
	case o.updated < o.desired && o.current >= o.desired:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonRollingOut,
			"%d of %d intents have the present template%s", o.updated, o.desired, o.waitsFor())
	case o.ready < o.desired:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing, "%d of %d intents are ready%s",
			o.ready, o.desired, o.waitsFor())
	case o.desired == 0:
		return is(metav1.ConditionTrue, volumesv1alpha1.ReasonReady, "no node is selected")
	}
	return is(metav1.ConditionTrue, volumesv1alpha1.ReasonReady, "all %d intents are ready", o.desired)
}

// inReport orders problems, whose own order is another one in each pass. One that no retry can mend comes first.
func inReport(a, b problem) int {
	refused := func(p problem) int {
		if p.reason == volumesv1alpha1.ReasonIntentRefused {
			return 1
		}
		return 0
	}
	return cmp.Or(refused(a)-refused(b), strings.Compare(a.message, b.message))
}

// stall is Stalled, or nil.
func (o outcome) stall() *metav1.Condition {
	c := o.condition()
	switch c.Reason {
	case volumesv1alpha1.ReasonNameTaken, volumesv1alpha1.ReasonIntentsFailing, volumesv1alpha1.ReasonSelectorInvalid:
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: c.Reason, Message: c.Message}
	}
	return nil
}

func (o outcome) waitsFor() string {
	if o.waiting == nil {
		return ""
	}
	return "; waiting for " + describe(o.waiting)
}

func describe(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	text := fmt.Sprintf("VolumeAttachmentIntent %s", intent.Name)
	if c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady); c != nil {
		text += fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
	}
	return text
}

func more(all int) string {
	if all <= 1 {
		return ""
	}
	return fmt.Sprintf("; and %d more", all-1)
}
