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

// collectable says whether the exclusive claim is one of a volume that is gone, or that several nodes may have by now: no
// PersistentVolume that asks for a claim, no intent, no attachment,
// no entry and no line of it is known anywhere. It only says that nobody needs the claim; that it may go says the protocol.
func collectable(f *Facts) bool {
	if !f.Claim.Exists || f.Described && !f.Shared {
		return false
	}
	for _, n := range f.Nodes {
		if len(n.Wanted)+len(n.Leaving)+len(n.Refused)+len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent || n.State.Use != (handshake.Use{}) {
			return false
		}
	}
	return true
}

// collect deletes the claim of a volume that is gone: it is moved to nobody, which fences its last holder, and deleted if that is
// still so. Where its holder is waited for, an event will tell. At the start each claim is looked at once.
func (c *Controller) collect(ctx context.Context, f *Facts) error {
	if !collectable(f) {
		return nil
	}
	claim, err := c.Claims.Read(ctx, f.Volume)
	if err != nil {
		return err
	}
	if f.Claim = claim.Handshake(); !f.Claim.Exists {
		return nil
	}
	claim, free, err := c.giveUp(ctx, f, claim)
	if err != nil || !free {
		return err
	}
	fenced := false
	if claim.MovedFrom != "" {
		if fenced, err = c.fenceHolder(ctx, f, &Node{}); err != nil {
			return err
		}
	}
	if c.Protocol.MayCollectClaim(f.Claim, fenced) != handshake.GuardNone {
		return nil
	}
	_, _, err = c.Claims.Swap(ctx, f.Volume, claim, exclusive.Claim{})
	return err
}

// giveUp moves the claim to nobody, and says whether that is done; it may have to be waited for. A move that is under way is finished first.
func (c *Controller) giveUp(ctx context.Context, f *Facts, claim exclusive.Claim) (exclusive.Claim, bool, error) {
	nobody := &Node{}
	if claim.Holder == "" {
		return claim, true, nil
	}
	if claim.MovedFrom != "" {
		var fenced bool
		var err error
		if claim, fenced, err = c.fence(ctx, f, nobody, claim); !fenced || err != nil {
			return claim, false, err
		}
	}
	if free, err := c.mayLeave(ctx, f, nobody, claim); err != nil || !free {
		return claim, false, err
	}
	return c.swapClaim(ctx, f, nobody, claim, exclusive.Claim{MovedFrom: claim.Holder})
}
