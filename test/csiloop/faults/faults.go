/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package faults makes the driver fail on command. A fault is a file in the backing store that every process looks
// for at each call, so a test can add and remove faults while the driver runs, and one that killed its process is
// counted before it does.
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
	// Wait lets Delay pass, then goes on.
	Wait Action = "Wait"
	// Hang waits until the fault is removed, then goes on.
	Hang Action = "Hang"
	// Die kills the process at once, as by kill -9.
	Die Action = "Die"
)

// Moment is when a fault strikes.
type Moment string

const (
	// Before the call's work: what ends the call then keeps it from being done.
	Before Moment = "Before"
	// After the work is done, and before the caller learns of it.
	After Moment = "After"
)

// Fault is one fault. Empty selectors match everything.
type Fault struct {
	// ID names the file; Add sets it.
	ID string `json:"id"`
	// Method without its service, such as NodeStageVolume.
	Method string `json:"method,omitempty"`
	Volume string `json:"volume,omitempty"`
	// Node the call is about, as in the ledger.
	Node string `json:"node,omitempty"`
	// Count of calls that it strikes; 0 is all until it is removed.
	Count   int           `json:"count,omitempty"`
	When    Moment        `json:"when"`
	Action  Action        `json:"action"`
	Code    codes.Code    `json:"code,omitempty"`
	Message string        `json:"message,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
	// IgnoreCancel makes Wait and Hang, and the work after them, go on when the caller has given up: the call ends
	// later than anyone expects.
	IgnoreCancel bool `json:"ignoreCancel,omitempty"`
}

func dir(backingDir string) string { return filepath.Join(backingDir, "faults") }
func file(backingDir, id string) string {
	return filepath.Join(dir(backingDir), id+".json")
}
func hitsFile(backingDir, id string) string {
	return filepath.Join(dir(backingDir), id+".hits")
}

// Add puts the fault in force and returns its ID. It is in force for every call that begins after Add returned.
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

// Remove ends the fault, and lets go on what hangs in it. Removing it twice is fine.
func Remove(backingDir, id string) error {
	var errs []error
	for _, path := range []string{file(backingDir, id), hitsFile(backingDir, id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing fault: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Hits is how many calls the fault has struck.
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

// WaitHits returns when the fault has struck at least so many calls: a call that hangs in it is then hanging.
func WaitHits(ctx context.Context, backingDir, id string, atLeast int) error {
	return filelock.WaitFor(ctx, dir(backingDir), func() (bool, error) {
		hits, err := Hits(backingDir, id)
		return hits >= atLeast, err
	})
}

// waitRemoved returns when the fault is no more.
func waitRemoved(ctx context.Context, backingDir, id string) error {
	return filelock.WaitFor(ctx, dir(backingDir), func() (bool, error) {
		_, err := os.Stat(file(backingDir, id))
		if errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		return false, err
	})
}
