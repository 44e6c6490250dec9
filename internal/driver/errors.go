/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is what an error means for the state of the volume.
type Outcome string

const (
	// Invalid is final: the call had no effect, and a retry with the same arguments cannot help.
	Invalid Outcome = "Invalid"
	// NotFound is final: the driver does not know the volume.
	NotFound Outcome = "NotFound"
	// Transient is final for this call: what was asked for did not come about, and the call is not running. A later one
	// may succeed. Whether it may have left a part of its work behind, see HadNoEffect.
	Transient Outcome = "Transient"
	// Uncertain means that the call may have had its effect, may have it later, or never. It never means "not mounted".
	Uncertain Outcome = "Uncertain"
)

// Error is a driver's typed error.
type Error struct {
	Outcome Outcome
	// Code is the gRPC code's name, such as DeadlineExceeded. If the cause is known more precisely, it is a reason of
	// the API package (FormatToolMissing, FilesystemMismatch, UnknownFilesystem).
	Code string
	// Message for a person. It never contains a secret.
	Message string
	// NoEffect: the driver has refused the call before it began, or never got it.
	NoEffect bool
	// Err is the cause, may be nil.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

func (e *Error) Unwrap() error { return e.Err }

// OutcomeOf returns what err means. An error that is not an *Error is Uncertain, because its effect is unknown.
func OutcomeOf(err error) Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome
	}
	return Uncertain
}

// IsUncertain reports whether the call may have had, or may still have, its effect.
func IsUncertain(err error) bool { return err != nil && OutcomeOf(err) == Uncertain }

// IsInvalid reports whether a retry with the same arguments cannot help.
func IsInvalid(err error) bool { return err != nil && OutcomeOf(err) == Invalid }

// IsNotFound reports whether the driver does not know the volume.
func IsNotFound(err error) bool { return err != nil && OutcomeOf(err) == NotFound }

// HadNoEffect reports whether it is known that the call has left nothing behind. One that a driver has begun and that
// failed may have: a session, a mapping, a decrypted device.
func HadNoEffect(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.NoEffect || e.Outcome == Invalid || e.Outcome == NotFound)
}

// CodeOf returns the error's code, or a general one.
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "DeadlineExceeded"
	}
	return "Unknown"
}
