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

// takeClaim makes the exclusive claim name n, and the user that n is for, moving it where it has to be. It says whether it does now.
func (c *Controller) takeClaim(ctx context.Context, f *Facts, n *Node) (bool, error) {
	if !f.Exclusive || f.locked(n) {
		return true, nil
	}
	claim, err := c.findClaim(ctx, f, n)
	if err != nil {
		return false, err
	}
	if f.Claim = claim.Handshake(); !f.Claim.Exists {
		n.wait("", "")
		return false, nil
	}
	if claim.MovedFrom != "" {
		var fenced bool
		if claim, fenced, err = c.fence(ctx, f, n, claim); !fenced || err != nil {
			return false, err
		}
	}
	if claim.Holder == n.Name {
		return c.takeUser(ctx, f, n, claim)
	}
	claim, moved, err := c.moveClaim(ctx, f, n, claim)
	if err != nil || claim.MovedFrom == "" {
		// It was not moved, or nobody held it: then it is taken.
		return moved, err
	}
	_, fenced, err := c.fence(ctx, f, n, claim)
	return fenced, err
}

// findClaim reads the claim live, or makes it. Where none is known the making comes first: it is the check. It names no user yet: the node
// may use the volume already, if its access modes were others.
func (c *Controller) findClaim(ctx context.Context, f *Facts, n *Node) (exclusive.Claim, error) {
	if f.Claim.Exists {
		return c.Claims.Read(ctx, f.Volume)
	}
	claim, _, err := c.Claims.Swap(ctx, f.Volume, exclusive.Claim{}, exclusive.Claim{Holder: n.Name})
	return claim, err
}

// moveClaim is the first of the three writes of a move: the claim names n and remembers its holder, if it had one. It says whether it does.
func (c *Controller) moveClaim(ctx context.Context, f *Facts, n *Node, claim exclusive.Claim) (exclusive.Claim, bool, error) {
	if free, err := c.mayLeave(ctx, f, n, claim); err != nil || !free {
		return claim, false, err
	}
	return c.swapClaim(ctx, f, n, claim, exclusive.Claim{Holder: n.Name, MovedFrom: claim.Holder, User: f.user(n)})
}

// mayLeave says whether the claim may leave the node that holds it. It is n that waits for it.
func (c *Controller) mayLeave(ctx context.Context, f *Facts, n *Node, claim exclusive.Claim) (bool, error) {
	if passes, err := c.mayPassOn(ctx, f, n, claim); err != nil || !passes {
		return false, err
	}
	if claim.Holder == "" {
		return true, nil
	}
	holder := f.node(claim.Holder)
	nvs, err := c.readState(ctx, holder.Name)
	if err != nil {
		return false, err
	}
	holder.observe(nvs, f.Volume)
	va, err := c.readAttachments(ctx, f, holder)
	if err != nil {
		return false, err
	}
	if guard := c.Protocol.MayMoveClaim(claim.Handshake(), holder.State, va); guard != handshake.GuardNone {
		n.waitFor(holder, guard)
		return false, nil
	}
	return true, nil
}

// finishMove does so for a claim that nobody waits for any more. Otherwise the move would stand until somebody wants the volume again.
func (c *Controller) finishMove(ctx context.Context, f *Facts) error {
	if f.Claim.MovedFrom == "" || f.lockUnreadable() ||
		slices.ContainsFunc(f.Nodes, func(n *Node) bool { return n.candidate() != nil }) {
		return nil
	}
	claim, err := c.Claims.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Claim = claim.Handshake(); claim.MovedFrom == "" || claim.Holder == "" { // collect goes on with one that is nobody's
		return nil
	}
	_, _, err = c.fence(ctx, f, &Node{}, claim)
	return err
}

// fence does the other two: the node that the claim was moved from is fenced, and the claim forgets it. The claim was read
// live, with MovedFrom, before anything that is read here. It is n that waits for it. It says whether both are done.
func (c *Controller) fence(ctx context.Context, f *Facts, n *Node, claim exclusive.Claim) (exclusive.Claim, bool, error) {
	if fenced, err := c.fenceHolder(ctx, f, n); err != nil || !fenced {
		return claim, false, err
	}
	return c.swapClaim(ctx, f, n, claim, exclusive.Claim{Holder: claim.Holder, User: claim.User})
}

// fenceHolder fences the node that the claim was moved from, and says whether it did.
func (c *Controller) fenceHolder(ctx context.Context, f *Facts, n *Node) (bool, error) {
	from := f.node(f.Claim.MovedFrom)
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

// swapClaim puts next in place of the claim that was read, and says whether it did: if somebody else was first, an event will tell.
func (c *Controller) swapClaim(ctx context.Context, f *Facts, n *Node, claim, next exclusive.Claim) (exclusive.Claim, bool, error) {
	stands, swapped, err := c.Claims.Swap(ctx, f.Volume, claim, next)
	if err != nil {
		return claim, false, err
	}
	if !swapped {
		n.wait("", "")
		return claim, false, nil
	}
	f.Claim = stands.Handshake()
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
