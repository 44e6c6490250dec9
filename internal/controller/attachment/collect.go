/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=hawser-system,verbs=delete

// collectable says whether the exclusive claim is one of a volume that is gone: no PersistentVolume, no intent, no attachment,
// no entry and no line of it is known anywhere. It only says that nobody needs the claim; that it may go says the protocol.
func collectable(f *Facts) bool {
	if !f.Claim.Exists || f.Described {
		return false
	}
	for _, n := range f.Nodes {
		if len(n.Wanted)+len(n.Leaving)+len(n.Refused)+len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent || n.State.Use != (handshake.Use{}) {
			return false
		}
	}
	return true
}

// collect deletes the claim of a volume that is gone: it is moved to nobody, which fences its last holder, and deleted at the
// version at which that was so. Where its holder is waited for, an event will tell. At the start each claim is looked at once.
func (c *Controller) collect(ctx context.Context, f *Facts) error {
	if !collectable(f) {
		return nil
	}
	lease, err := c.readClaim(ctx, f.Volume)
	if lease == nil || err != nil {
		return err
	}
	f.Claim = claimOf(lease)
	if lease, err = c.giveUp(ctx, f, lease); lease == nil || err != nil {
		return err
	}
	fenced := false
	if f.Claim.MovedFrom != "" {
		if fenced, err = c.fenceHolder(ctx, f, &Node{}); err != nil {
			return err
		}
	}
	if c.Protocol.MayCollectClaim(f.Claim, fenced) != handshake.GuardNone {
		return nil
	}
	err = c.Client.Delete(ctx, lease, client.Preconditions{UID: ptr.To(lease.UID), ResourceVersion: ptr.To(lease.ResourceVersion)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the claim of %s: %w", f.Volume, err)
	}
	return nil
}

// giveUp moves the claim to nobody; nil where it has to be waited for. A move that is under way is finished first.
func (c *Controller) giveUp(ctx context.Context, f *Facts, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	nobody := &Node{}
	if f.Claim.Holder == "" {
		return lease, nil
	}
	if f.Claim.MovedFrom != "" {
		var err error
		if lease, err = c.fence(ctx, f, nobody, lease); lease == nil || err != nil {
			return nil, err
		}
	}
	if free, err := c.leaveHolder(ctx, f, nobody, lease); err != nil || !free {
		return nil, err
	}
	return c.updateClaim(ctx, f, nobody, lease)
}
