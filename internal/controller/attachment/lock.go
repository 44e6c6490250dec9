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
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// takeLock makes the lock name n, and the user that n is for, moving it if necessary. It reports whether the lock does
// now.
func (c *Controller) takeLock(ctx context.Context, f *decision.Facts, n *decision.Node) (bool, error) {
	if !f.Exclusive || f.Locked(n) {
		return true, nil
	}
	lock, err := c.findLock(ctx, f, n)
	if err != nil {
		return false, err
	}
	if f.Lock = lock.Handshake(); !f.Lock.Exists {
		n.SetWait("", "")
		return false, nil
	}
	if lock.MovedFrom != "" {
		var fenced bool
		if lock, fenced, err = c.fenceLock(ctx, f, n, lock); !fenced || err != nil {
			return false, err
		}
	}
	if lock.Holder == n.Name {
		return c.takeLockUser(ctx, f, n, lock)
	}
	lock, moved, err := c.moveLock(ctx, f, n, lock)
	if err != nil || lock.MovedFrom == "" {
		// It was not moved, or no node held it: then it is taken.
		return moved, err
	}
	_, fenced, err := c.fenceLock(ctx, f, n, lock)
	return fenced, err
}

// findLock reads the lock live, or makes it. Where none is known the making comes first: it is the check. It names no
// user yet: the node may use the volume already, if its access modes were others.
func (c *Controller) findLock(ctx context.Context, f *decision.Facts, n *decision.Node) (exclusive.Lock, error) {
	if f.Lock.Exists {
		return c.Locks.Read(ctx, f.Volume)
	}
	lock, _, err := c.Locks.Swap(ctx, f.Volume, exclusive.Lock{}, exclusive.Lock{Holder: n.Name})
	return lock, err
}

// moveLock is the first of the three writes of a move: the lock names n and remembers its holder, if it had one. It
// reports whether it does.
func (c *Controller) moveLock(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock exclusive.Lock,
) (exclusive.Lock, bool, error) {
	if free, err := c.lockMayLeave(ctx, f, n, lock); err != nil || !free {
		return lock, false, err
	}
	return c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: n.Name, MovedFrom: lock.Holder, User: f.LockUser(n)})
}

// lockMayLeave reports whether the lock may leave the node that holds it. It is n that waits for it.
func (c *Controller) lockMayLeave(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock exclusive.Lock,
) (bool, error) {
	if passes, err := c.mayPassLockOn(ctx, f, n, lock); err != nil || !passes {
		return false, err
	}
	if lock.Holder == "" {
		return true, nil
	}
	holder := f.Node(lock.Holder)
	nvs, err := c.readState(ctx, holder.Name)
	if err != nil {
		return false, err
	}
	holder.Observe(nvs, f.Volume)
	if _, err := c.noteLift(ctx, f, holder); err != nil { // it would be attached elsewhere in vain
		return false, err
	}
	va, err := c.readAttachments(ctx, f, holder)
	if err != nil {
		return false, err
	}
	if guard := c.Protocol.MayMoveLock(lock.Handshake(), holder.State, va); guard != handshake.GuardNone {
		n.WaitFor(holder, guard)
		return false, nil
	}
	return true, nil
}

// finishMove does so for a lock that no node waits for any more. Otherwise the move would stay unfinished until the
// next use.
func (c *Controller) finishMove(ctx context.Context, f *decision.Facts) error {
	if f.Lock.MovedFrom == "" || f.LockUnknown() ||
		slices.ContainsFunc(f.Nodes, func(n *decision.Node) bool { return n.Candidate() != nil }) {
		return nil
	}
	lock, err := c.Locks.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Lock = lock.Handshake(); lock.MovedFrom == "" ||
		lock.Holder == "" { // collect goes on with one that no node holds
		return nil
	}
	_, _, err = c.fenceLock(ctx, f, &decision.Node{}, lock)
	return err
}

// fenceLock does the other two: the node that the lock was moved from is fenced, and the lock forgets it. The lock was
// read live, with MovedFrom, before anything that is read here. It is n that waits for it. It reports whether both are
// done.
func (c *Controller) fenceLock(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock exclusive.Lock,
) (exclusive.Lock, bool, error) {
	if fenced, err := c.fenceHolder(ctx, f, n); err != nil || !fenced {
		return lock, false, err
	}
	return c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: lock.Holder, User: lock.User})
}

// fenceHolder fences the node that the lock was moved from, and reports whether it did.
func (c *Controller) fenceHolder(ctx context.Context, f *decision.Facts, n *decision.Node) (bool, error) {
	from := f.Node(f.Lock.MovedFrom)
	guard := handshake.GuardNone
	_, err := c.Writer.Apply(ctx, from.Name,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			from.Observe(nvs, f.Volume)
			va, err := c.readAttachments(ctx, f, from)
			if err != nil {
				return nil, err
			}
			if guard = c.Protocol.MayFence(from.State, va); guard != handshake.GuardNone || nvs == nil {
				return nil, nil
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ }, nil
		})
	if err != nil {
		return false, fmt.Errorf("fencing node %s: %w", from.Name, err)
	}
	if guard != handshake.GuardNone {
		n.WaitFor(from, guard)
		return false, nil
	}
	return true, nil
}

// swapLock replaces the lock that was read by next, and reports whether it did: if another writer was first, an event
// follows.
func (c *Controller) swapLock(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock, next exclusive.Lock,
) (exclusive.Lock, bool, error) {
	stands, swapped, err := c.Locks.Swap(ctx, f.Volume, lock, next)
	if err != nil {
		return lock, false, err
	}
	if !swapped {
		n.SetWait("", "")
		return lock, false, nil
	}
	f.Lock = stands.Handshake()
	return stands, true, nil
}

// takeLockUser makes the lock, which was read live and names n, name its user too. It reports whether the lock does
// now.
func (c *Controller) takeLockUser(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock exclusive.Lock,
) (bool, error) {
	user := f.LockUser(n)
	if user == (exclusive.User{}) || lock.User == user {
		return true, nil
	}
	named, err := c.readUser(ctx, lock.User)
	if err != nil {
		return false, err
	}
	nvs, err := c.readState(ctx, n.Name)
	if err != nil {
		return false, err
	}
	n.Observe(nvs, f.Volume)
	if f.Replace {
		if err := c.readLists(ctx, f.Volume, n); err != nil {
			return false, err
		}
	}
	if f.ListedForAnother(n) {
		n.WaitForUser(lock)
		return false, nil
	}
	// The kubelet passes the volume from one of its pods to the next; what an older manager pinned is in use by that.
	i := n.Candidate()
	own := n.KubeletUses && !i.ByAgent() || lock.User == (exclusive.User{}) && i.Pinned()
	if c.Protocol.MayTakeUser(lock.Handshake(), user.UID, named, n.State, own) != handshake.GuardNone {
		n.WaitForUser(lock)
		return false, nil
	}
	_, taken, err := c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: n.Name, User: user})
	return taken, err
}

// mayPassLockOn reports whether the lock may leave the user that it names. It is n that waits for it.
func (c *Controller) mayPassLockOn(
	ctx context.Context, f *decision.Facts, n *decision.Node, lock exclusive.Lock,
) (bool, error) {
	if lock.User == f.LockUser(n) {
		return true, nil
	}
	named, err := c.readUser(ctx, lock.User)
	if err != nil {
		return false, err
	}
	if c.Protocol.MayPassOn(named) != handshake.GuardNone {
		n.WaitForUser(lock)
		return false, nil
	}
	return true, nil
}
