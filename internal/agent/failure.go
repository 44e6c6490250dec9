/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// problem is an error that the agent itself found, with the reason under which users see it.
type problem struct {
	reason  string
	message string
	// waits: an event will tell when it is mended, no time is set for another attempt.
	waits bool
	// stalled: nothing but a change of the intent or of what it points to can mend it.
	stalled bool
	// until is when to try again; zero leaves it to the backoff.
	until time.Time
	err   error
}

func (p *problem) Error() string {
	if p.err == nil {
		return p.message
	}
	return fmt.Sprintf("%s: %v", p.message, p.err)
}

func (p *problem) Unwrap() error { return p.err }

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason: reason, message: fmt.Sprintf(format, args...)}
}

// errAgain: the facts have changed since they were gathered; they are gathered again.
var errAgain = errors.New("the facts have changed")

// failure is what is known of an act that failed.
type failure struct {
	volumesv1alpha1.OperationError
	reason  string
	stalled bool
	waits   bool
	// inputs are what the attempt was made with; other inputs are tried at once.
	inputs string
	// announced: an event tells of this message and count.
	announced bool
}

var failedReason = map[string]string{
	"stage":     volumesv1alpha1.ReasonStageFailed,
	"publish":   volumesv1alpha1.ReasonPublishFailed,
	"expand":    volumesv1alpha1.ReasonExpandFailed,
	"unpublish": volumesv1alpha1.ReasonUnpublishFailed,
	"unstage":   volumesv1alpha1.ReasonUnstageFailed,
}

// preciseCodes are reasons that drivers give as the code of an error.
var preciseCodes = []string{
	volumesv1alpha1.ReasonUnknownFSType, volumesv1alpha1.ReasonFormatToolMissing,
	volumesv1alpha1.ReasonFilesystemMismatch, volumesv1alpha1.ReasonMountOptions,
}

// longestMessage of one failure. A condition of the node names some of them and holds 32 KiB; one that is longer would keep
// the node's whole state from being written.
const longestMessage = 4096

// newFailure counts one more failed attempt of the operation after previous, which may be nil.
func newFailure(previous *failure, operation, inputs string, err error, now time.Time) *failure {
	f := &failure{inputs: inputs}
	f.reason, f.stalled = classify(operation, err)
	code, message := driver.CodeOf(err), err.Error()
	var p *problem
	var e *driver.Error
	switch {
	case errors.As(err, &p):
		code, message, f.waits = p.reason, p.Error(), p.waits
	case errors.As(err, &e):
		message = e.Message
	}
	var before *volumesv1alpha1.OperationError
	if previous != nil {
		before = &previous.OperationError
	}
	f.OperationError = *status.NextError(before, operation, code, shortened(message, longestMessage), now)
	f.schedule(p, now)
	if previous != nil {
		f.announced = previous.announced && previous.Message == f.Message && !powerOfTwo(f.Attempts)
	}
	return f
}

// schedule corrects the time of the next attempt where it is not the backoff that decides.
func (f *failure) schedule(p *problem, now time.Time) {
	switch {
	case f.waits:
		f.NextAttemptTime = nil
	case p != nil && !p.until.IsZero():
		f.NextAttemptTime.Time = p.until
	case f.stalled:
		// Nobody expects another attempt to help; it is made for the sake of a driver that was mended.
		f.NextAttemptTime.Time = now.Add(status.LongestBackoff)
	}
}

// classify gives an error its reason, and says whether no retry can mend it.
func classify(operation string, err error) (reason string, stalled bool) {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p.reason, p.stalled
	case errors.Is(err, mount.ErrOccupied):
		return volumesv1alpha1.ReasonPathOccupied, false
	case errors.Is(err, mount.ErrSubPath):
		return volumesv1alpha1.ReasonSubPathInvalid, true
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
	if code := driver.CodeOf(err); slices.Contains(preciseCodes, code) {
		return code, final
	}
	if driver.IsUncertain(err) {
		return volumesv1alpha1.ReasonOutcomeUncertain, false
	}
	return failedReason[operation], final
}

func powerOfTwo(n int32) bool { return n&(n-1) == 0 }

// waiting says whether the act has to wait for another time, or for an event, before it is tried again.
func (f *failure) waiting(inputs string, now time.Time) bool {
	if f == nil || f.inputs != "" && f.inputs != inputs {
		return false
	}
	return f.waits || f.NextAttemptTime != nil && now.Before(f.NextAttemptTime.Time)
}

// awaitsOtherUse reports whether the end of another intent's publication may mend it.
func (f *failure) awaitsOtherUse() bool {
	return f.reason == volumesv1alpha1.ReasonReadOnlyNotEnforced || f.reason == volumesv1alpha1.ReasonDeviceReadOnly
}

// awaitsHolder reports whether the end of a process that holds the device may mend it.
func (f *failure) awaitsHolder() bool {
	return f.reason == volumesv1alpha1.ReasonReadOnlyNotEnforced || f.reason == volumesv1alpha1.ReasonDeviceHeld
}

// awaitsMounts says whether a change of the mount table may mend it.
func (f *failure) awaitsMounts() bool {
	return f.reason == volumesv1alpha1.ReasonSharedByKubelet || f.reason == volumesv1alpha1.ReasonPathOccupied ||
		f.reason == volumesv1alpha1.ReasonMountLost || f.reason == volumesv1alpha1.ReasonReadOnlyNotEnforced
}

// nextError is the OperationError of newFailure, for what keeps no more than that.
func nextError(previous *volumesv1alpha1.OperationError, operation string, err error, now time.Time) *volumesv1alpha1.OperationError {
	var before *failure
	if previous != nil {
		before = &failure{OperationError: *previous}
	}
	return &newFailure(before, operation, "", err, now).OperationError
}

// shortened cuts a text that is too long, between two characters.
func shortened(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest-3], "") + "..."
}
