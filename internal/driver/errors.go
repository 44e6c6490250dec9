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

// Outcome says what an error means for the state of the world.
type Outcome string

const (
	// Invalid is final: nothing was done and asking again with the same arguments cannot help.
	Invalid Outcome = "Invalid"
	// NotFound is final: the driver does not know the volume.
	NotFound Outcome = "NotFound"
	// Transient is final for this call, nothing was done or is going on; a later call may succeed.
	Transient Outcome = "Transient"
	// Uncertain: the call may have had its effect, have it yet, or not. Never "not mounted".
	Uncertain Outcome = "Uncertain"
)

// Error is a driver's typed error.
type Error struct {
	Outcome Outcome
	// Code is the gRPC code's name, such as DeadlineExceeded, or a reason of the API package
	// (FormatToolMissing, FilesystemMismatch, UnknownFilesystem) where it is known more precisely.
	Code string
	// Message for a person; never holds a secret.
	Message string
	// Err is the cause, may be nil.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

func (e *Error) Unwrap() error { return e.Err }

// OutcomeOf returns what err means. Anything that is not an *Error is Uncertain, because nothing is known of it.
func OutcomeOf(err error) Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome
	}
	return Uncertain
}

// IsUncertain says whether the call may have had, or may still have, its effect.
func IsUncertain(err error) bool { return err != nil && OutcomeOf(err) == Uncertain }

// IsInvalid says whether no retry with the same arguments can help.
func IsInvalid(err error) bool { return err != nil && OutcomeOf(err) == Invalid }

// IsNotFound says whether the driver does not know the volume.
func IsNotFound(err error) bool { return err != nil && OutcomeOf(err) == NotFound }

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
