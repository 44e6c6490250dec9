/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Step is what a move does next for one intent.
type Step string

// Steps of a move, in their order.
const (
	// Create the replacement.
	Create Step = "Create"
	// AwaitResolved waits until the manager has accepted the replacement.
	AwaitResolved Step = "AwaitResolved"
	// AwaitTarget waits until the replacement is Ready, or until nothing but the source holds it back.
	AwaitTarget Step = "AwaitTarget"
	// Delete the source.
	Delete Step = "Delete"
	// AwaitReleased waits until the node of the source has released the volume.
	AwaitReleased Step = "AwaitReleased"
	// AwaitReady waits until the replacement is Ready.
	AwaitReady Step = "AwaitReady"
	// Done means that there is nothing left to do.
	Done Step = "Done"
	// Failed means that only a person can go on.
	Failed Step = "Failed"
)

// Progress is how far one intent is on its way: the source as it is now, and its replacement. Either may be nil.
type Progress struct {
	Source, Replacement *volumesv1alpha1.VolumeAttachmentIntent
	// Drop is true if there shall be no replacement.
	Drop bool
}

// hopeless are the reasons of Attached that the release of the source does not change.
var hopeless = map[string]bool{
	volumesv1alpha1.ReasonNodeLimitReached: true, volumesv1alpha1.ReasonDriverNotInstalled: true,
	volumesv1alpha1.ReasonForcedAway: true, volumesv1alpha1.ReasonNodeStateTooLarge: true,
	volumesv1alpha1.ReasonTooManyUses: true,
}

// heldBack are the reasons of Attached that the release of an exclusive volume by the source ends.
var heldBack = map[string]bool{
	volumesv1alpha1.ReasonVolumeInUse: true, volumesv1alpha1.ReasonReadWriteOncePod: true,
}

// Next is the next step, and what is waited for or why it failed. It never returns Delete before the replacement has
// the volume of the source and is Ready, or waits for nothing but the source.
func (p Progress) Next() (step Step, why string) {
	source := p.Source
	switch {
	case p.Drop && source == nil:
		return Done, ""
	case p.Drop && source.DeletionTimestamp == nil:
		return Delete, ""
	case p.Drop:
		return AwaitReleased, waits(source)
	case p.Replacement == nil && source == nil:
		return Failed, "neither the intent nor its replacement exists any more"
	case p.Replacement == nil:
		return Create, ""
	case p.Replacement.DeletionTimestamp != nil:
		return Failed, "the replacement is being deleted"
	case source != nil && source.DeletionTimestamp == nil:
		return p.accepted()
	case source != nil:
		return AwaitReleased, waits(source)
	default:
		return p.arrival()
	}
}

// accepted is the step while source and replacement exist.
func (p Progress) accepted() (Step, string) {
	conditions := p.Replacement.Status.Conditions
	attached := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionAttached)
	refused := attached != nil && attached.Status == metav1.ConditionFalse
	if refused && hopeless[attached.Reason] {
		return Failed, because(attached)
	}
	if c := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionStalled); c != nil &&
		c.Status == metav1.ConditionTrue {
		return Failed, because(c)
	}
	switch c := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionResolved); {
	case c == nil || c.Status == metav1.ConditionUnknown:
		return AwaitResolved, "the manager has not resolved the replacement yet"
	case c.Status == metav1.ConditionFalse:
		return Failed, because(c)
	case otherVolume(p.Source, p.Replacement) != "":
		return Failed, otherVolume(p.Source, p.Replacement)
	case refused && heldBack[attached.Reason] || Ready(p.Replacement):
		return Delete, ""
	default:
		return AwaitTarget, waits(p.Replacement)
	}
}

// arrival is the step once the source is gone.
func (p Progress) arrival() (Step, string) {
	if Ready(p.Replacement) {
		return Done, ""
	}
	if c := meta.FindStatusCondition(p.Replacement.Status.Conditions, volumesv1alpha1.ConditionStalled); c != nil &&
		c.Status == metav1.ConditionTrue {
		return Failed, because(c)
	}
	return AwaitReady, waits(p.Replacement)
}

// Ready reports whether the present generation of an intent is Ready.
func Ready(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Status.ObservedGeneration == intent.Generation &&
		meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
}

// waits is what an intent reports that it waits for.
func waits(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	if c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady); c != nil {
		return because(c)
	}
	return "not reconciled yet"
}

func because(c *metav1.Condition) string {
	if c.Message == "" {
		return c.Reason
	}
	return fmt.Sprintf("%s: %s", c.Reason, c.Message)
}
