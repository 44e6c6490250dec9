/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
)

// Target identifies a call.
type Target struct{ Method, Volume, Node string }

func (f Fault) matches(t Target) bool {
	return (f.Method == "" || f.Method == t.Method) &&
		(f.Volume == "" || f.Volume == t.Volume) &&
		(f.Node == "" || f.Node == t.Node)
}

// Do runs a call's work with the active faults.
func Do(ctx context.Context, backingDir string, target Target, work func(context.Context) (any, error)) (any, error) {
	ctx, err := strike(ctx, backingDir, target, Before)
	if err != nil {
		return nil, err
	}
	answer, err := work(ctx)
	if err != nil {
		return answer, err
	}
	if _, err := strike(ctx, backingDir, target, After); err != nil {
		return nil, err
	}
	return answer, nil
}

// strike executes the first fault that matches, and returns the context for the rest of the call.
func strike(ctx context.Context, backingDir string, target Target, when Moment) (context.Context, error) {
	fault, err := take(backingDir, target, when)
	if err != nil || fault == nil {
		return ctx, err
	}
	if fault.IgnoreCancel {
		ctx = context.WithoutCancel(ctx)
	}
	switch fault.Action {
	case Error:
		return ctx, status.Error(fault.Code, fault.message())
	case Wait:
		err = pass(ctx, fault.Delay)
	case Hang:
		err = waitRemoved(ctx, backingDir, fault.ID)
	case Die:
		err = die()
	default:
		return ctx, status.Errorf(codes.Internal, "fault %s has unknown action %q", fault.ID, fault.Action)
	}
	if err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	return ctx, nil
}

func (f Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return fmt.Sprintf("fault %s %s the effect", f.ID, f.When)
}

func pass(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func die() error {
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		return err
	}
	select {} // the signal arrives at any moment
}

// take finds a fault that matches and counts the hit.
func take(backingDir string, target Target, when Moment) (*Fault, error) {
	paths, err := filepath.Glob(filepath.Join(dir(backingDir), "*.json"))
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	var taken *Fault
	err = filelock.With(filepath.Join(backingDir, "faults.lock"), func() error {
		for _, path := range paths {
			fault, err := read(path)
			if err != nil {
				return err
			}
			if fault == nil || fault.When != when || !fault.matches(target) {
				continue
			}
			hit, err := fault.hit(backingDir)
			if hit {
				taken = fault
			}
			if hit || err != nil {
				return err
			}
		}
		return nil
	})
	return taken, err
}

// read returns nil for a fault that was removed meanwhile.
func read(path string) (*Fault, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading fault: %w", err)
	}
	fault := &Fault{}
	if err := json.Unmarshal(data, fault); err != nil {
		return nil, fmt.Errorf("decoding fault %s: %w", path, err)
	}
	return fault, nil
}

// hit counts one more call, unless the fault has reached its count.
func (f Fault) hit(backingDir string) (bool, error) {
	hits, err := Hits(backingDir, f.ID)
	if err != nil || (f.Count > 0 && hits >= f.Count) {
		return false, err
	}
	counter, err := os.OpenFile(hitsFile(backingDir, f.ID), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return false, fmt.Errorf("counting hit: %w", err)
	}
	_, err = counter.Write([]byte{'.'})
	return true, errors.Join(err, counter.Close())
}
