/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// collectable says whether the exclusive lock is one of a volume that is gone, or that several nodes may have by now: no
// PersistentVolume that asks for a lock, no intent, no attachment,
// no entry and no line of it is known anywhere. It only says that nobody needs the lock; that it may go says the protocol.
func collectable(f *Facts) bool {
	if !f.Lock.Exists || f.Described && !f.Shared {
		return false
	}
	for _, n := range f.Nodes {
		if len(n.Wanted)+len(n.Leaving)+len(n.Refused)+len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent || n.State.Use != (handshake.Use{}) {
			return false
		}
	}
	return true
}

// collect deletes the lock of a volume that is gone: it is moved to nobody, which fences its last holder, and deleted if that is
// still so. Where its holder is waited for, an event will tell. At the start each lock is looked at once.
func (c *Controller) collect(ctx context.Context, f *Facts) error {
	if !collectable(f) {
		return nil
	}
	lock, err := c.Locks.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Lock = lock.Handshake(); !f.Lock.Exists {
		return nil
	}
	lock, free, err := c.giveUp(ctx, f, lock)
	if err != nil || !free {
		return err
	}
	fenced := false
	if lock.MovedFrom != "" {
		if fenced, err = c.fenceHolder(ctx, f, &Node{}); err != nil {
			return err
		}
	}
	if c.Protocol.MayCollectLock(f.Lock, fenced) != handshake.GuardNone {
		return nil
	}
	_, _, err = c.Locks.Swap(ctx, f.Volume, lock, exclusive.Lock{})
	return err
}

// giveUp moves the lock to nobody, and says whether that is done; it may have to be waited for. A move that is under way is finished first.
func (c *Controller) giveUp(ctx context.Context, f *Facts, lock exclusive.Lock) (exclusive.Lock, bool, error) {
	nobody := &Node{}
	if lock.Holder == "" {
		return lock, true, nil
	}
	if lock.MovedFrom != "" {
		var fenced bool
		var err error
		if lock, fenced, err = c.fence(ctx, f, nobody, lock); !fenced || err != nil {
			return lock, false, err
		}
	}
	if free, err := c.mayLeave(ctx, f, nobody, lock); err != nil || !free {
		return lock, false, err
	}
	return c.swapLock(ctx, f, nobody, lock, exclusive.Lock{MovedFrom: lock.Holder})
}
