/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// takeLock makes the exclusive lock name n, and the user that n is for, moving it where it has to be. It says whether it does now.
func (c *Controller) takeLock(ctx context.Context, f *Facts, n *Node) (bool, error) {
	if !f.Exclusive || f.locked(n) {
		return true, nil
	}
	lock, err := c.findLock(ctx, f, n)
	if err != nil {
		return false, err
	}
	if f.Lock = lock.Handshake(); !f.Lock.Exists {
		n.wait("", "")
		return false, nil
	}
	if lock.MovedFrom != "" {
		var fenced bool
		if lock, fenced, err = c.fence(ctx, f, n, lock); !fenced || err != nil {
			return false, err
		}
	}
	if lock.Holder == n.Name {
		return c.takeUser(ctx, f, n, lock)
	}
	lock, moved, err := c.moveLock(ctx, f, n, lock)
	if err != nil || lock.MovedFrom == "" {
		// It was not moved, or nobody held it: then it is taken.
		return moved, err
	}
	_, fenced, err := c.fence(ctx, f, n, lock)
	return fenced, err
}

// findLock reads the lock live, or makes it. Where none is known the making comes first: it is the check. It names no user yet: the node
// may use the volume already, if its access modes were others.
func (c *Controller) findLock(ctx context.Context, f *Facts, n *Node) (exclusive.Lock, error) {
	if f.Lock.Exists {
		return c.Locks.Read(ctx, f.Volume)
	}
	lock, _, err := c.Locks.Swap(ctx, f.Volume, exclusive.Lock{}, exclusive.Lock{Holder: n.Name})
	return lock, err
}

// moveLock is the first of the three writes of a move: the lock names n and remembers its holder, if it had one. It says whether it does.
func (c *Controller) moveLock(ctx context.Context, f *Facts, n *Node, lock exclusive.Lock) (exclusive.Lock, bool, error) {
	if free, err := c.mayLeave(ctx, f, n, lock); err != nil || !free {
		return lock, false, err
	}
	return c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: n.Name, MovedFrom: lock.Holder, User: f.user(n)})
}

// mayLeave says whether the lock may leave the node that holds it. It is n that waits for it.
func (c *Controller) mayLeave(ctx context.Context, f *Facts, n *Node, lock exclusive.Lock) (bool, error) {
	if passes, err := c.mayPassOn(ctx, f, n, lock); err != nil || !passes {
		return false, err
	}
	if lock.Holder == "" {
		return true, nil
	}
	holder := f.node(lock.Holder)
	nvs, err := c.readState(ctx, holder.Name)
	if err != nil {
		return false, err
	}
	holder.observe(nvs, f.Volume)
	va, err := c.readAttachments(ctx, f, holder)
	if err != nil {
		return false, err
	}
	if guard := c.Protocol.MayMoveLock(lock.Handshake(), holder.State, va); guard != handshake.GuardNone {
		n.waitFor(holder, guard)
		return false, nil
	}
	return true, nil
}

// finishMove does so for a lock that nobody waits for any more. Otherwise the move would stand until somebody wants the volume again.
func (c *Controller) finishMove(ctx context.Context, f *Facts) error {
	if f.Lock.MovedFrom == "" || f.lockUnreadable() ||
		slices.ContainsFunc(f.Nodes, func(n *Node) bool { return n.candidate() != nil }) {
		return nil
	}
	lock, err := c.Locks.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Lock = lock.Handshake(); lock.MovedFrom == "" || lock.Holder == "" { // collect goes on with one that is nobody's
		return nil
	}
	_, _, err = c.fence(ctx, f, &Node{}, lock)
	return err
}

// fence does the other two: the node that the lock was moved from is fenced, and the lock forgets it. The lock was read
// live, with MovedFrom, before anything that is read here. It is n that waits for it. It says whether both are done.
func (c *Controller) fence(ctx context.Context, f *Facts, n *Node, lock exclusive.Lock) (exclusive.Lock, bool, error) {
	if fenced, err := c.fenceHolder(ctx, f, n); err != nil || !fenced {
		return lock, false, err
	}
	return c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: lock.Holder, User: lock.User})
}

// fenceHolder fences the node that the lock was moved from, and says whether it did.
func (c *Controller) fenceHolder(ctx context.Context, f *Facts, n *Node) (bool, error) {
	from := f.node(f.Lock.MovedFrom)
	guard := handshake.GuardNone
	_, err := c.Writer.Apply(ctx, from.Name, func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		from.observe(nvs, f.Volume)
		va, err := c.readAttachments(ctx, f, from)
		if err != nil {
			return nil, err
		}
		if guard = c.Protocol.MayFence(from.State, va); guard != handshake.GuardNone || nvs == nil {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Fences++ }, nil
	})
	if err != nil {
		return false, fmt.Errorf("fencing node %s: %w", from.Name, err)
	}
	if guard != handshake.GuardNone {
		n.waitFor(from, guard)
		return false, nil
	}
	return true, nil
}

// swapLock puts next in place of the lock that was read, and says whether it did: if somebody else was first, an event will tell.
func (c *Controller) swapLock(ctx context.Context, f *Facts, n *Node, lock, next exclusive.Lock) (exclusive.Lock, bool, error) {
	stands, swapped, err := c.Locks.Swap(ctx, f.Volume, lock, next)
	if err != nil {
		return lock, false, err
	}
	if !swapped {
		n.wait("", "")
		return lock, false, nil
	}
	f.Lock = stands.Handshake()
	return stands, true, nil
}

// readAttachments reads, live, every attachment of the volume to the node that is known or that could be: the
// one of the shared name, that of the entry, and those of other names. The answer is one that is not gone, if there is any.
func (c *Controller) readAttachments(ctx context.Context, f *Facts, n *Node) (handshake.Attachment, error) {
	names := map[string]bool{volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name): true}
	if n.Entry != nil && n.Entry.AttachmentName != "" {
		names[n.Entry.AttachmentName] = true
	}
	for i := range n.Attachments {
		names[n.Attachments[i].Name] = true
	}
	for name := range names {
		va, err := c.readAttachment(ctx, name)
		if err != nil {
			return handshake.Attachment{}, err
		}
		if a := handshake.AttachmentFrom(va); !a.Gone() {
			return a, nil
		}
	}
	return handshake.Attachment{}, nil
}
