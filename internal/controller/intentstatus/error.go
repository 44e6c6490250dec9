/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	"slices"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/status"
)

// Operations of the cluster side in lastError.
const (
	OperationResolve = "resolve"
	OperationAttach  = "attach"
	OperationDetach  = "detach"
)

// setError says what the present wait is about. It has no next attempt: an event is waited for.
func setError(intent *volumesv1alpha1.VolumeAttachmentIntent, operation, code, message string) {
	last, next := intent.Status.LastError, status.NewError(operation, code, message)
	if last != nil && last.Operation == operation && last.Code == next.Code {
		if last.Message == next.Message {
			return
		}
		next.Attempts = last.Attempts + 1
	}
	intent.Status.LastError = next
}

// clearError drops lastError if it is about one of these operations; the agent's are not ours to drop.
func clearError(intent *volumesv1alpha1.VolumeAttachmentIntent, operations ...string) {
	if e := intent.Status.LastError; e != nil && slices.Contains(operations, e.Operation) {
		intent.Status.LastError = nil
	}
}

// setAttacherError counts one failure of the driver's attacher for each time at which it reported one. It tries again
// by itself, at about the time that is named; ours is to wait for its answer.
func setAttacherError(intent *volumesv1alpha1.VolumeAttachmentIntent, found *decision.Finding) {
	operation := OperationAttach
	if found.Reason == volumesv1alpha1.ReasonDetachFailed || found.Reason == volumesv1alpha1.ReasonAttacherSilent {
		operation = OperationDetach
	}
	at := found.Error.Time.Time
	last := intent.Status.LastError
	if last != nil && last.Operation == operation && last.NextAttemptTime != nil &&
		last.NextAttemptTime.Add(-status.Backoff(last.Attempts)).Equal(at) {
		return
	}
	if last != nil && last.NextAttemptTime == nil {
		// That was a wait for something else.
		last = nil
	}
	intent.Status.LastError = status.NextError(last, operation, codeOf(found.Error), found.Error.Message, at)
}

// codeOf is the name of the gRPC code that the driver returned.
func codeOf(e *storagev1.VolumeError) string {
	if e.ErrorCode == nil || *e.ErrorCode < 0 {
		return codes.Unknown.String()
	}
	return codes.Code(*e.ErrorCode).String()
}
