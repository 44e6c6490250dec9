/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/agent/operation"
)

// slowOwnership reports progress as the test wants, until its context ends.
type slowOwnership struct {
	operation.Mounts
	files chan int
}

func (s slowOwnership) SetOwnership(ctx context.Context, _ string, _ int64, _ corev1.PodFSGroupChangePolicy,
	progress func(int)) error {
	for {
		select {
		case n, more := <-s.files:
			if !more {
				return nil
			}
			progress(n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestAChangeOfOwnershipEndsWhenItMakesNoProgress(t *testing.T) {
	b := boundedMounts{Mounts: slowOwnership{files: make(chan int)}, timeout: 10 * time.Millisecond}
	err := b.SetOwnership(t.Context(), "/volume", 1, corev1.FSGroupChangeAlways, func(int) {})
	if err == nil || !strings.Contains(err.Error(), "no progress") {
		t.Errorf("change of ownership of /volume: error %v, want one that says that it makes no progress", err)
	}
}

func TestAChangeOfOwnershipThatGoesOnIsNotEnded(t *testing.T) {
	s := slowOwnership{files: make(chan int)}
	b := boundedMounts{Mounts: s, timeout: patience}
	told := make(chan int, 1)
	go func() {
		s.files <- 1024
		close(s.files)
	}()
	if err := b.SetOwnership(t.Context(), "/volume", 1, corev1.FSGroupChangeAlways,
		func(n int) { told <- n }); err != nil {
		t.Errorf("change of ownership of /volume: error %v, want none", err)
	}
	if n := <-told; n != 1024 {
		t.Errorf("progress of /volume: %d files, want 1024", n)
	}
}
