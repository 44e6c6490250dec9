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
	// ErrOccupied: something that is not ours stands at the path.
	ErrOccupied = errors.New("path is occupied")
	// ErrSubPath: the sub path is not a plain path to something beneath its root.
	ErrSubPath = errors.New("invalid sub path")
	// ErrOption: a mount option cannot be set on a bind mount.
	ErrOption = errors.New("mount option not supported")
	// ErrNotMounted: there is no mount at the path.
	ErrNotMounted = errors.New("not a mount point")
	// ErrStillMounted: after the unmount another mount stands at the path.
	ErrStillMounted = errors.New("still mounted")
	// ErrShutdownUnsupported: the filesystem cannot be shut down, or must not be, because more than the volume uses it.
	ErrShutdownUnsupported = errors.New("filesystem shutdown not supported")
	// ErrAmbiguous: the device carries the signatures of more than one filesystem.
	ErrAmbiguous = errors.New("more than one filesystem signature")
)

// Call is a call into the kernel that takes its time.
type Call struct {
	Operation string
	Path      string
	Since     time.Time
}

// PendingError says that a call goes on that nobody waits for any more. Its effect may have come, may come
// yet, or never.
type PendingError struct {
	Call Call
	// Err is the end of the caller's context, or nil when the caller was refused because of an earlier call.
	Err error
}

func (e *PendingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("earlier %s of %s still runs since %s", e.Call.Operation, e.Call.Path, e.Call.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s of %s is given up but still runs: %v", e.Call.Operation, e.Call.Path, e.Err)
}

func (e *PendingError) Unwrap() error { return e.Err }
