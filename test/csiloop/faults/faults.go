/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package faults makes the driver fail on command. A fault is a file in the backing store, which every process
// checks at each call. A test can therefore add and remove faults while the driver runs. A fault that kills its
// process counts the hit before.
package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
)

// Action is what a fault does.
type Action string

const (
	// Error answers with Code and Message.
	Error Action = "Error"
	// Wait waits for Delay, then continues.
	Wait Action = "Wait"
	// Hang waits until the fault is removed, then continues.
	Hang Action = "Hang"
	// Die kills the process at once, as kill -9 does.
	Die Action = "Die"
)

// Moment is when a fault strikes.
type Moment string

const (
	// Before the call's work. A fault that ends the call prevents the work.
	Before Moment = "Before"
	// After the work, before the answer.
	After Moment = "After"
)

// Fault is one fault. Empty selectors match everything.
type Fault struct {
	// ID names the file; Add sets it.
	ID string `json:"id"`
	// Method without its service, such as NodeStageVolume.
	Method string `json:"method,omitempty"`
	Volume string `json:"volume,omitempty"`
	// Node of the call, as in the ledger.
	Node string `json:"node,omitempty"`
	// Count is how many calls it strikes. 0 means all, until it is removed.
	Count   int           `json:"count,omitempty"`
	When    Moment        `json:"when"`
	Action  Action        `json:"action"`
	Code    codes.Code    `json:"code,omitempty"`
	Message string        `json:"message,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
	// IgnoreCancel makes Wait and Hang, and the work after them, continue after the caller gave up. The call then ends
	// unexpectedly late.
	IgnoreCancel bool `json:"ignoreCancel,omitempty"`
}

func dir(backingDir string) string { return filepath.Join(backingDir, "faults") }
func file(backingDir, id string) string {
	return filepath.Join(dir(backingDir), id+".json")
}
func hitsFile(backingDir, id string) string {
	return filepath.Join(dir(backingDir), id+".hits")
}

// Add activates the fault and returns its ID. The fault applies to every call that begins after Add returned.
func Add(backingDir string, fault Fault) (string, error) {
	if fault.When == "" {
		fault.When = Before
	}
	if err := os.MkdirAll(dir(backingDir), 0o755); err != nil {
		return "", fmt.Errorf("creating fault directory: %w", err)
	}
	reserved, err := os.CreateTemp(dir(backingDir), "fault-*.id")
	if err != nil {
		return "", fmt.Errorf("naming fault: %w", err)
	}
	name := filepath.Base(reserved.Name())
	fault.ID = name[:len(name)-len(".id")]
	if err := errors.Join(reserved.Close(), os.Remove(reserved.Name())); err != nil {
		return "", fmt.Errorf("naming fault: %w", err)
	}
	data, err := json.Marshal(fault)
	if err != nil {
		return "", fmt.Errorf("encoding fault: %w", err)
	}
	return fault.ID, filelock.WriteAtomic(file(backingDir, fault.ID), data)
}

// Remove ends the fault, and lets calls that hang in it continue. Removing it twice is not an error.
func Remove(backingDir, id string) error {
	var errs []error
	for _, path := range []string{file(backingDir, id), hitsFile(backingDir, id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing fault: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Hits is the number of calls that the fault has struck.
func Hits(backingDir, id string) (int, error) {
	info, err := os.Stat(hitsFile(backingDir, id))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading hits: %w", err)
	}
	return int(info.Size()), nil
}

// WaitHits returns when the fault has struck at least this number of calls. A call that hangs in it is then hanging.
func WaitHits(ctx context.Context, backingDir, id string, atLeast int) error {
	return filelock.WaitFor(ctx, dir(backingDir), func() (bool, error) {
		hits, err := Hits(backingDir, id)
		return hits >= atLeast, err
	})
}

// waitRemoved returns when the fault was removed.
func waitRemoved(ctx context.Context, backingDir, id string) error {
	return filelock.WaitFor(ctx, dir(backingDir), func() (bool, error) {
		_, err := os.Stat(file(backingDir, id))
		if errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		return false, err
	})
}
