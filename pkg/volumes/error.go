/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Reason is why an intent is not as its caller wants it: a reason of a condition, as the package v1alpha1 of the API
// names it, or one of the constants below.
type Reason string

// Reasons that are not those of a condition.
const (
	// ReasonNotFound: the intent does not exist.
	ReasonNotFound Reason = "NotFound"
	// ReasonNotObserved: no status has been written for its present spec.
	ReasonNotObserved Reason = "NotObserved"
	// ReasonUnknown: the API server could not be read.
	ReasonUnknown Reason = "Unknown"
	// ReasonDeleted: the intent was deleted while its creator waited for it.
	ReasonDeleted Reason = "Deleted"
	// ReasonExists: another intent has the name: with another spec, or with another controller.
	ReasonExists Reason = "ExistsOtherwise"
	// ReasonBeingDeleted: the intent that has the name is being deleted. DeleteAndWait waits for that.
	ReasonBeingDeleted Reason = "BeingDeleted"
)

// Error is that of an intent which is not as its caller wants it. errors.As finds it.
type Error struct {
	// Intent is the namespace and the name of the intent.
	Intent types.NamespacedName
	// Condition is the type of the condition that Reason and Message are of. Empty for the reasons of this package.
	Condition string
	// Reason is for programs.
	Reason Reason
	// Message is for people, and may change.
	Message string

	cause error
}

// Error names the intent, the condition, the reason, the message and what ended the wait.
func (e *Error) Error() string {
	text := fmt.Sprintf("VolumeAttachmentIntent %s: %s: %s", e.Intent, e.Reason, e.Message)
	if e.Condition != "" {
		text = fmt.Sprintf("VolumeAttachmentIntent %s: condition %s: %s: %s", e.Intent, e.Condition, e.Reason, e.Message)
	}
	if e.cause != nil {
		text += fmt.Sprintf(": %v", e.cause)
	}
	return text
}

// Unwrap returns what ended the wait: the cause of its context, such as context.DeadlineExceeded. It is nil if the wait
// ended because of the intent.
func (e *Error) Unwrap() error { return e.cause }

// Stalled reports whether no retry helps: the author of the intent or an administrator has to change something first.
func (e *Error) Stalled() bool { return e.Condition == volumesv1alpha1.ConditionStalled }

// ReasonOf is the reason of the *Error in err. It is empty if err has none.
func ReasonOf(err error) Reason {
	var about *Error
	if errors.As(err, &about) {
		return about.Reason
	}
	return ""
}

// explain is why an intent that exists is not Ready, or not gone.
func explain(intent *volumesv1alpha1.VolumeAttachmentIntent) *Error {
	e := &Error{Intent: types.NamespacedName{Namespace: intent.Namespace, Name: intent.Name}}
	if intent.Status.ObservedGeneration != intent.Generation {
		e.Reason, e.Message = ReasonNotObserved, "no status has been written for its present spec"
		return e
	}
	c := deciding(intent)
	switch {
	case c == nil:
		e.Reason, e.Message = ReasonNotObserved, "it has no condition Ready"
	case c.Type == volumesv1alpha1.ConditionReady && c.Status == metav1.ConditionTrue:
		e.Reason, e.Message = ReasonNotObserved, "it is being deleted, or its condition Ready is older than its spec"
	default:
		e.Condition, e.Reason, e.Message = c.Type, Reason(c.Reason), c.Message
	}
	return e
}

// deciding is the condition with the reason. Ready of an intent that is being deleted has the reason Releasing in all
// cases. What fails on the node is then in the condition that is being undone.
func deciding(intent *volumesv1alpha1.VolumeAttachmentIntent) *metav1.Condition {
	conditions := intent.Status.Conditions
	ready := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionReady)
	switch {
	case intent.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(conditions, volumesv1alpha1.ConditionStalled):
		return meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionStalled)
	case ready == nil || ready.Reason != volumesv1alpha1.ReasonReleasing:
		return ready
	}
	undone := []string{volumesv1alpha1.ConditionPublished, volumesv1alpha1.ConditionStaged}
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool {
		return slices.Contains(undone, c.Type) && c.Status != metav1.ConditionTrue
	})
	if i < 0 {
		return ready
	}
	return &conditions[i]
}
