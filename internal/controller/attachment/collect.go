/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// collectLock deletes the lock of a volume that is gone. It first moves the lock to no node, which fences its last
// holder, and deletes it if that is still so. If its holder is not ready for that, an event starts the next try. At
// the start each lock is checked once.
func (c *Controller) collectLock(ctx context.Context, f *decision.Facts) error {
	if !decision.Collectable(f) {
		return nil
	}
	lock, err := c.Locks.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Lock = lock.Handshake(); !f.Lock.Exists {
		return nil
	}
	lock, free, err := c.giveUpLock(ctx, f, lock)
	if err != nil || !free {
		return err
	}
	fenced := false
	if lock.MovedFrom != "" {
		if fenced, err = c.fenceHolder(ctx, f, &decision.Node{}); err != nil {
			return err
		}
	}
	if c.Protocol.MayCollectLock(f.Lock, fenced) != handshake.GuardNone {
		return nil
	}
	_, _, err = c.Locks.Swap(ctx, f.Volume, lock, exclusive.Lock{})
	return err
}

// giveUpLock moves the lock to no node and reports whether that is done; it may have to wait. It first finishes a move
// that is under way.
func (c *Controller) giveUpLock(
	ctx context.Context, f *decision.Facts, lock exclusive.Lock,
) (exclusive.Lock, bool, error) {
	nobody := &decision.Node{}
	if lock.Holder == "" {
		return lock, true, nil
	}
	if lock.MovedFrom != "" {
		var fenced bool
		var err error
		if lock, fenced, err = c.fenceLock(ctx, f, nobody, lock); !fenced || err != nil {
			return lock, false, err
		}
	}
	if free, err := c.lockMayLeave(ctx, f, nobody, lock); err != nil || !free {
		return lock, false, err
	}
	return c.swapLock(ctx, f, nobody, lock, exclusive.Lock{MovedFrom: lock.Holder})
}
