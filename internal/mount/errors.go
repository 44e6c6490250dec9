/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrOccupied means that a file or mount of another program is at the path.
	ErrOccupied = errors.New("path is occupied")
	// ErrSubPath means that the sub path is not a plain path to a directory beneath its root. It wraps ENOTDIR where
	// there is a file in its place.
	ErrSubPath = errors.New("invalid sub path")
	// ErrOption means that a mount option cannot be set on a bind mount.
	ErrOption = errors.New("mount option not supported")
	// ErrNotMounted means that there is no mount at the path.
	ErrNotMounted = errors.New("not a mount point")
	// ErrStillMounted means that another mount is at the path after the unmount.
	ErrStillMounted = errors.New("still mounted")
	// ErrShutdownUnsupported means that the filesystem cannot be shut down, or that it does not belong to the
	// volume alone.
	ErrShutdownUnsupported = errors.New("filesystem shutdown not supported")
	// ErrAmbiguous means that the device has the signatures of more than one filesystem.
	ErrAmbiguous = errors.New("more than one filesystem signature")
)

// Call is a call into the kernel that is running.
type Call struct {
	Operation string
	Path      string
	Since     time.Time
}

// PendingError means that a call is still running after its caller gave up. It may have had its effect, may have it
// later, or never.
type PendingError struct {
	Call Call
	// Err is the end of the caller's context. It is nil if the call was refused because of an earlier call.
	Err error
	// Ended is closed when the call has ended.
	Ended <-chan struct{}
}

func (e *PendingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("earlier %s of %s is still running since %s", e.Call.Operation, e.Call.Path,
			e.Call.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the caller of %s of %s gave up, and the call is still running: %v",
		e.Call.Operation, e.Call.Path, e.Err)
}

func (e *PendingError) Unwrap() error { return e.Err }
