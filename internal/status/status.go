/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package status turns what happened into what users read: conditions into Ready, and failed
// attempts into lastError and the time of the next one.
package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Set sets one condition of intent for its present generation and says whether anything changed.
func Set(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, value metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(&intent.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: value, Reason: reason, Message: message,
		ObservedGeneration: intent.Generation,
	})
}

// NeedsFinalizer says whether an intent has to carry the release finalizer: one for which the agent stages or publishes, or has still
// to undo that, and one with a detachPolicy, which has to be there for as long as it may be needed. What is only attached is detached
// after its intent is gone.
func NeedsFinalizer(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return CarriedOutByAgent(intent) || intent.Spec.DetachPolicy != nil
}

// HoldsClaim says whether the deletion of an intent's claim has to wait for it: an agent mounts the volume for it, may have to undo that,
// or may come to, because with the release finalizer it needs nobody's leave any more. An intent for which nothing but an attachment is
// made leaves its claim alone; what guards the volume is the VolumeAttachment.
func HoldsClaim(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet && (NeedsFinalizer(intent) || Finalized(intent))
}

// Finalized says whether the intent carries the release finalizer: it does not go before it is released.
func Finalized(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return slices.Contains(intent.Finalizers, volumesv1alpha1.ReleaseFinalizer)
}

// AwaitsRelease says whether an intent that carries the release finalizer and is deleted keeps it until its node has let go of the
// volume. That is more than those that need it now: an agent may still have published what an intent wanted before it was lowered.
func AwaitsRelease(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet || intent.Spec.DetachPolicy != nil
}

// CarriedOutByAgent says whether the node's agent computes Ready: it does for every intent that it
// stages or publishes, or has still to undo; the cluster controller does for the others.
func CarriedOutByAgent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet {
		return false
	}
	return intent.Spec.DesiredState != volumesv1alpha1.DesiredAttached || AgentConditionsPresent(intent)
}

// AgentConditionsPresent says whether the agent has spoken of the intent and not taken it back.
func AgentConditionsPresent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionStaged) != nil ||
		meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionPublished) != nil
}

// Needed lists the conditions that desiredState needs to be True, in the order in which they come about.
func Needed(desired volumesv1alpha1.DesiredState) []string {
	needed := []string{volumesv1alpha1.ConditionResolved, volumesv1alpha1.ConditionAttached}
	if desired == volumesv1alpha1.DesiredAttached {
		return needed
	}
	needed = append(needed, volumesv1alpha1.ConditionStaged)
	if desired == volumesv1alpha1.DesiredStaged {
		return needed
	}
	return append(needed, volumesv1alpha1.ConditionPublished)
}

// SetReady computes Ready from the conditions that desiredState needs, sets it with
// observedGeneration, and says whether anything changed. The first condition that is not True gives reason and message.
func SetReady(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	changed := intent.Status.ObservedGeneration != intent.Generation
	intent.Status.ObservedGeneration = intent.Generation
	value, reason, message := ready(intent)
	return Set(intent, volumesv1alpha1.ConditionReady, value, reason, message) || changed
}

func ready(intent *volumesv1alpha1.VolumeAttachmentIntent) (metav1.ConditionStatus, string, string) {
	if !intent.DeletionTimestamp.IsZero() {
		return metav1.ConditionFalse, volumesv1alpha1.ReasonReleasing, "the intent is being deleted and its volume released"
	}
	for _, t := range Needed(intent.Spec.DesiredState) {
		c := meta.FindStatusCondition(intent.Status.Conditions, t)
		switch {
		case c == nil:
			return metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing, "waiting for " + t
		case c.Status != metav1.ConditionTrue:
			return metav1.ConditionFalse, c.Reason, c.Message
		}
	}
	return metav1.ConditionTrue, volumesv1alpha1.ReasonReady, "the volume is " + string(intent.Spec.DesiredState)
}

// Backoff of failed attempts, as upstream has it: doubling from the first to the longest.
const (
	FirstBackoff   = 500 * time.Millisecond
	LongestBackoff = 2*time.Minute + 2*time.Second
)

// Backoff is the wait after so many failed attempts in a row.
func Backoff(attempts int32) time.Duration {
	d := FirstBackoff
	for range max(attempts-1, 0) {
		if d *= 2; d >= LongestBackoff {
			return LongestBackoff
		}
	}
	return d
}

// NextError counts one more failed attempt of operation after previous (nil for none) and says when the next is due.
// Attempts are counted in the API so that a restart does not forget the backoff.
func NextError(previous *volumesv1alpha1.OperationError, operation, code, message string, now time.Time) *volumesv1alpha1.OperationError {
	e := &volumesv1alpha1.OperationError{Operation: operation, Code: code, Message: message, Attempts: 1}
	if previous != nil && previous.Operation == operation {
		e.Attempts = previous.Attempts + 1
	}
	next := metav1.NewMicroTime(now.Add(Backoff(e.Attempts)))
	e.NextAttemptTime = &next
	return e
}
