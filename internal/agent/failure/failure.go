/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package failure has what goes wrong in the agent: errors with the reason that users see, and their consequence, which
// is when the step is retried and what the status reports. This is the one place that maps the one to the other.
package failure

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// Problem is an error that the agent itself found, with the reason under which users see it.
type Problem struct {
	Reason  string
	Message string
	// AwaitsEvent: an event shows when another attempt makes sense, so no time is set for one.
	AwaitsEvent bool
	// Stalled: nothing but a change of the intent or of what it points to can mend it.
	Stalled bool
	// RetryAt is when to try again; zero leaves it to the backoff.
	RetryAt time.Time
	Err     error
}

// Error is the message, followed by the cause where there is one.
func (p *Problem) Error() string {
	if p.Err == nil {
		return p.Message
	}
	return fmt.Sprintf("%s: %v", p.Message, p.Err)
}

// Unwrap returns the cause, which may be nil.
func (p *Problem) Unwrap() error { return p.Err }

// Problemf returns a problem with a message and no cause, which is retried with the backoff.
func Problemf(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ErrChanged: the facts have changed since they were gathered; they are gathered again.
var ErrChanged = errors.New("the facts have changed")

// Failure is what is known of a step that failed.
type Failure struct {
	volumesv1alpha1.OperationError
	Reason      string
	Stalled     bool
	AwaitsEvent bool
	// inputs are what the attempt was made with; other inputs are tried at once.
	inputs string
	// Announced: an event with this message and count was sent.
	Announced bool
}

// Reasons are those of failures that have no reason of their own, by operation.
var Reasons = map[string]string{
	"stage":     volumesv1alpha1.ReasonStageFailed,
	"publish":   volumesv1alpha1.ReasonPublishFailed,
	"expand":    volumesv1alpha1.ReasonExpandFailed,
	"unpublish": volumesv1alpha1.ReasonUnpublishFailed,
	"unstage":   volumesv1alpha1.ReasonUnstageFailed,
}

// PreciseCodes are reasons that drivers give as the code of an error.
var PreciseCodes = []string{
	volumesv1alpha1.ReasonUnknownFSType, volumesv1alpha1.ReasonFormatToolMissing,
	volumesv1alpha1.ReasonFilesystemMismatch, volumesv1alpha1.ReasonMountOptions,
}

// New counts one more failed attempt of the operation after previous, which may be nil.
func New(previous *Failure, operation, inputs string, err error, now time.Time) *Failure {
	f := &Failure{inputs: inputs}
	f.Reason, f.Stalled = classify(operation, err)
	code, message := driver.CodeOf(err), err.Error()
	var p *Problem
	var e *driver.Error
	switch {
	case errors.As(err, &p):
		code, message, f.AwaitsEvent = p.Reason, p.Error(), p.AwaitsEvent
	case errors.As(err, &e):
		message = e.Message
	}
	var before *volumesv1alpha1.OperationError
	if previous != nil {
		before = &previous.OperationError
	}
	f.OperationError = *status.NextError(before, operation, code, message, now)
	f.schedule(p, now)
	if previous != nil {
		f.Announced = previous.Announced && previous.Message == f.Message && !powerOfTwo(f.Attempts)
	}
	return f
}

// schedule corrects the time of the next attempt where it is not the backoff that decides.
func (f *Failure) schedule(p *Problem, now time.Time) {
	switch {
	case f.AwaitsEvent:
		f.NextAttemptTime = nil
	case p != nil && !p.RetryAt.IsZero():
		f.NextAttemptTime.Time = p.RetryAt
	case f.Stalled:
		// Another attempt is not expected to help. It is made because the driver may have been repaired.
		f.NextAttemptTime.Time = now.Add(status.LongestBackoff)
	}
}

// classify gives an error its reason, and reports whether no retry can succeed.
func classify(operation string, err error) (reason string, stalled bool) {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p.Reason, p.Stalled
	case errors.Is(err, mount.ErrOccupied):
		return volumesv1alpha1.ReasonPathOccupied, false
	case errors.Is(err, mount.ErrSubPath):
		return volumesv1alpha1.ReasonSubPathInvalid, !errors.Is(err, unix.ENOTDIR) // a file in its place may go
	case errors.Is(err, mount.ErrOption):
		return volumesv1alpha1.ReasonMountOptions, true
	case errors.Is(err, fs.ErrNotExist) && operation == "publish":
		return volumesv1alpha1.ReasonSubPathInvalid, false
	}
	if operation == "expand" && slices.Contains(driver.InfeasibleCodes, driver.CodeOf(err)) {
		return volumesv1alpha1.ReasonExpandInfeasible, false
	}
	forward := operation == "stage" || operation == "publish"
	final := driver.IsInvalid(err) && forward
	if code := driver.CodeOf(err); slices.Contains(PreciseCodes, code) {
		return code, final
	}
	if driver.IsUncertain(err) {
		return volumesv1alpha1.ReasonOutcomeUncertain, false
	}
	return Reasons[operation], final
}

func powerOfTwo(n int32) bool { return n&(n-1) == 0 }

// Waiting reports whether the step has to wait for another time, or for an event, before it is tried again.
func (f *Failure) Waiting(inputs string, now time.Time) bool {
	if f == nil || f.inputs != "" && f.inputs != inputs {
		return false
	}
	return f.AwaitsEvent || f.NextAttemptTime != nil && now.Before(f.NextAttemptTime.Time)
}

// AwaitsOtherUse reports whether the end of another intent's publication may let a retry succeed.
func (f *Failure) AwaitsOtherUse() bool {
	return f.Reason == volumesv1alpha1.ReasonReadOnlyNotEnforced || f.Reason == volumesv1alpha1.ReasonDeviceReadOnly
}

// AwaitsHolder reports whether the end of a process that uses the device or the volume may let a retry succeed.
func (f *Failure) AwaitsHolder() bool {
	return f.Reason == volumesv1alpha1.ReasonReadOnlyNotEnforced || f.Reason == volumesv1alpha1.ReasonDeviceHeld ||
		f.Reason == volumesv1alpha1.ReasonUsedByPods || f.Reason == volumesv1alpha1.ReasonVolumeSick
}

// AwaitsMounts reports whether a change of the mount table may let a retry succeed.
func (f *Failure) AwaitsMounts() bool {
	return f.Reason == volumesv1alpha1.ReasonSharedByKubelet || f.Reason == volumesv1alpha1.ReasonPathOccupied ||
		f.Reason == volumesv1alpha1.ReasonMountLost || f.Reason == volumesv1alpha1.ReasonReadOnlyNotEnforced ||
		f.Reason == volumesv1alpha1.ReasonSELinuxConflict
}

// NextError is the OperationError that New makes, for what keeps no more than that.
func NextError(previous *volumesv1alpha1.OperationError, operation string, err error,
	now time.Time) *volumesv1alpha1.OperationError {
	var before *Failure
	if previous != nil {
		before = &Failure{OperationError: *previous}
	}
	return &New(before, operation, "", err, now).OperationError
}
