/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/status"
)

// Found is what a controller found out about an intent.
type Found struct {
	// Result of resolving the intent.
	Result resolve.Result
	// Pins to set, which let the node's agent publish the volume; nil if the intent may not be pinned yet.
	Pins *resolve.Pins
	// Attached is the state of its attachment; nil for a controller that does not know it.
	Attached *decision.Finding
	// Unreachable says why the node's agent does not report; empty while it does, or if the controller does not know.
	Unreachable string
}

// Write puts what was found into the intent's status, in one update. It is the only writer of Resolved, Attached,
// Stalled, Ready and the pins on the manager's side.
func (r *Reporter) Write(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent, found Found) error {
	return r.update(ctx, cached, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		if intent.DeletionTimestamp.IsZero() {
			found.apply(intent, r.Clock.Now())
		} else {
			setLeaving(intent, found.Unreachable)
		}
	})
}

func (f Found) apply(intent *volumesv1alpha1.VolumeAttachmentIntent, now time.Time) {
	if f.Pins != nil {
		pin(intent, *f.Pins)
	}
	if f.Attached != nil || !f.Result.OK || resolvedBefore(intent) {
		setResolved(intent, f.Result)
		if f.Attached != nil {
			setAttached(intent, f.Result.OK, f.Attached, now)
		}
		setReady(intent)
	}
	if f.Unreachable != "" && status.CarriedOutByAgent(intent) {
		setUnreachable(intent, f.Unreachable)
	}
}

// resolvedBefore reports whether the status says what resolving came to. If it does not, or if the intent only waits
// for the admission policies, success is written together with Attached, which spares a write.
func resolvedBefore(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionResolved)
	return c != nil && c.Reason != volumesv1alpha1.ReasonAdmissionPolicyMissing
}

// setResolved sets the result of resolving: the condition, Stalled and lastError.
func setResolved(intent *volumesv1alpha1.VolumeAttachmentIntent, r resolve.Result) {
	if !r.OK {
		status.Set(intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, r.Reason, r.Message)
		setError(intent, OperationResolve, r.Reason, r.Message)
		if r.Stalled {
			status.Set(intent, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, r.Reason, r.Message)
		} else {
			unstall(intent)
		}
		return
	}
	message := r.Message
	if message == "" {
		message = "the claim is bound to volume " + r.Pins.VolumeName
	}
	status.Set(intent, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, r.Reason, message)
	clearError(intent, OperationResolve)
	unstall(intent)
}

// setAttached sets the state of the attachment. While the intent does not resolve, lastError is about that.
func setAttached(
	intent *volumesv1alpha1.VolumeAttachmentIntent, resolved bool, found *decision.Finding, now time.Time,
) {
	was := isTrue(intent, volumesv1alpha1.ConditionAttached)
	status.Set(intent, volumesv1alpha1.ConditionAttached, found.Status, found.Reason, found.Message)
	switch {
	case found.Status == metav1.ConditionTrue:
		clearError(intent, OperationAttach, OperationDetach)
		if !was {
			at := metav1.NewMicroTime(now)
			timeline(intent).Attached = &at
		}
	case !resolved || found.Reason == volumesv1alpha1.ReasonAttaching || found.Reason == volumesv1alpha1.ReasonDetaching:
	case found.Error != nil:
		setAttacherError(intent, found)
	default:
		setError(intent, OperationAttach, found.Reason, found.Message)
	}
}

// pin the intent to the volume that it resolved to.
func pin(intent *volumesv1alpha1.VolumeAttachmentIntent, p resolve.Pins) {
	s := &intent.Status
	s.ClaimUID, s.VolumeName, s.VolumeUID = p.ClaimUID, p.VolumeName, p.VolumeUID
	s.UniqueVolumeName, s.VolumeMode = p.UniqueVolumeName, p.VolumeMode
}

// unstall removes Stalled if resolving had set it.
func unstall(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionStalled)
	if c == nil {
		return
	}
	switch c.Reason {
	case volumesv1alpha1.ReasonClaimReplaced, volumesv1alpha1.ReasonPodReplaced, volumesv1alpha1.ReasonVolumeReplaced,
		volumesv1alpha1.ReasonVolumeNotSupported, volumesv1alpha1.ReasonVolumeSourceInvalid,
		volumesv1alpha1.ReasonVolumeModeMismatch, volumesv1alpha1.ReasonAccessModeMismatch:
		meta.RemoveStatusCondition(&intent.Status.Conditions, volumesv1alpha1.ConditionStalled)
	}
}
