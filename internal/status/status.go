/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package status computes what users read: Ready from the other conditions, and lastError with the time of the next
// attempt from failed attempts.
package status

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Set sets one condition of intent for its present generation and reports whether anything changed.
func Set(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, value metav1.ConditionStatus,
	reason, message string) bool {
	return meta.SetStatusCondition(&intent.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: value, Reason: reason, ObservedGeneration: intent.Generation,
		Message: Shorten(message, volumesv1alpha1.MaxConditionMessageLength),
	})
}

// NeedsFinalizer reports whether an intent needs the release finalizer. It does if the agent stages or
// publishes for it, or still has to undo that. An intent with a detachPolicy needs it too, so that the policy
// exists while it may apply. A volume that is only attached is detached after its intent is gone.
func NeedsFinalizer(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return CarriedOutByAgent(intent) || intent.Spec.DetachPolicy != nil
}

// HoldsClaim reports whether the deletion of an intent's claim has to wait for the intent. It does if an agent mounts
// the volume for it, or may have to undo that. It also does if the intent has the release finalizer, because an agent
// may then mount at any time. An intent that only attaches does not hold its claim: the VolumeAttachment protects the
// volume.
func HoldsClaim(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet && (NeedsFinalizer(intent) || Finalized(intent))
}

// Finalized reports whether the intent has the release finalizer.
func Finalized(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return slices.Contains(intent.Finalizers, volumesv1alpha1.ReleaseFinalizer)
}

// AwaitsRelease reports whether a deleted intent keeps the release finalizer until its node has released the volume.
// These are more than the intents that need it now: an agent may have published before the intent was lowered.
func AwaitsRelease(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet || intent.Spec.DetachPolicy != nil
}

// CarriedOutByAgent reports whether the node's agent computes Ready. It does for every intent that it stages or
// publishes, or still has to undo. For all others the cluster controller does.
func CarriedOutByAgent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet {
		return false
	}
	return intent.Spec.DesiredState != volumesv1alpha1.DesiredAttached || AgentConditionsPresent(intent)
}

// AgentConditionsPresent reports whether the intent has conditions that the agent set and did not remove.
func AgentConditionsPresent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionStaged) != nil ||
		meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionPublished) != nil
}

// Needed lists the conditions that desiredState needs to be True, in the order in which they become True.
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

// SetReady computes Ready from the conditions that desiredState needs and sets it with observedGeneration. It reports
// whether anything changed. Reason and message are those of the first condition that is not True.
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

// Backoff of failed attempts, as in upstream: it doubles from the first to the longest wait.
const (
	FirstBackoff   = 500 * time.Millisecond
	LongestBackoff = 2*time.Minute + 2*time.Second
)

// Backoff is the wait after this number of consecutive failed attempts.
func Backoff(attempts int32) time.Duration {
	d := FirstBackoff
	for range max(attempts-1, 0) {
		if d *= 2; d >= LongestBackoff {
			return LongestBackoff
		}
	}
	return d
}

// ShortenWait is when to try again after an event that may have removed the cause of a failure: after the first
// backoff, in place of at next. A pod that starts one process after the other causes such events without end, so
// shortened, which is the caller's, keeps until when no other event shortens a wait.
func ShortenWait(now, next time.Time, shortened *time.Time) time.Time {
	if now.Before(*shortened) {
		return next
	}
	*shortened = next
	if soon := now.Add(FirstBackoff); soon.Before(next) {
		return soon
	}
	return next
}

// longestNote is what the API server takes in an event, in bytes.
const longestNote = 1024

// ShortenNote cuts a note that is too long for an event, between two characters.
func ShortenNote(note string) string { return Shorten(note, longestNote) }

// Shorten cuts a text that is longer than so many bytes, between two characters.
func Shorten(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest-3], "") + "..."
}

// NewError is the first failure of operation. What a driver returned is cut to what the API takes.
func NewError(operation, code, message string) *volumesv1alpha1.OperationError {
	return &volumesv1alpha1.OperationError{
		Operation: operation, Code: Shorten(code, volumesv1alpha1.MaxCodeLength),
		Message: Shorten(message, volumesv1alpha1.MaxMessageLength), Attempts: 1,
	}
}

// NextError adds one failed attempt of operation to previous (nil for none) and sets the time of the next attempt.
// The API stores the number of attempts, so that a restart keeps the backoff.
func NextError(previous *volumesv1alpha1.OperationError, operation, code, message string,
	now time.Time) *volumesv1alpha1.OperationError {
	e := NewError(operation, code, message)
	if previous != nil && previous.Operation == operation {
		e.Attempts = previous.Attempts + 1
	}
	next := metav1.NewMicroTime(now.Add(Backoff(e.Attempts)))
	e.NextAttemptTime = &next
	return e
}

// ReleaseFails reports whether the agent reports that it cannot release the volume of this line: its unpublish or
// unstage fails, or does not end.
func ReleaseFails(line *volumesv1alpha1.NodeVolume) bool {
	return line.InUse && line.Error != nil && (line.Error.Operation == "unpublish" || line.Error.Operation == "unstage")
}
