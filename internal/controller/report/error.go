/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"slices"

	"google.golang.org/grpc/codes"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Operations of the cluster side in lastError.
const (
	OperationResolve = "resolve"
	OperationAttach  = "attach"
	OperationDetach  = "detach"
)

// SetError says what the present wait is about. It has no next attempt: an event is waited for.
func SetError(intent *volumesv1alpha1.VolumeAttachmentIntent, operation, code, message string) {
	last := intent.Status.LastError
	if last != nil && last.Operation == operation && last.Code == code && last.Message == message {
		return
	}
	attempts := int32(1)
	if last != nil && last.Operation == operation && last.Code == code {
		attempts = last.Attempts + 1
	}
	intent.Status.LastError = &volumesv1alpha1.OperationError{
		Operation: operation, Code: code, Message: message, Attempts: attempts,
	}
}

// ClearError drops lastError if it is about one of these operations; the agent's are not ours to drop.
func ClearError(intent *volumesv1alpha1.VolumeAttachmentIntent, operations ...string) {
	if e := intent.Status.LastError; e != nil && slices.Contains(operations, e.Operation) {
		intent.Status.LastError = nil
	}
}

// CodeName is the name of a gRPC code.
func CodeName(code int32) string {
	if code < 0 {
		return codes.Unknown.String()
	}
	return codes.Code(code).String()
}
