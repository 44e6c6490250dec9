/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// listVolume lets the kubelet mount the volume.
func (c *Controller) listVolume(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	r, err := c.Lister.List(ctx, n.Name, f.Volume)
	if err != nil {
		return fmt.Errorf("listing the volume in volumesAttached: %w", err)
	}
	n.Lists = r.Lists
	if !r.Lists.Attached {
		n.SetWait("", "")
	}
	return nil
}

// unlistVolume takes the volume out of volumesAttached, and then records that, so that the agent checks its node: only
// what it sees after that is no use by the kubelet. What was forced away from a kubelet that goes on using it is not
// checked for yet, but the boot is written down: the next one's kubelet cannot have found the volume listed.
func (c *Controller) unlistVolume(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	uid := n.State.Entry.UID
	r, err := c.Lister.Unlist(ctx, n.Name, f.Volume)
	if err != nil {
		return fmt.Errorf("taking the volume out of volumesAttached: %w", err)
	}
	n.Lists, n.BootID = r.Lists, r.BootID
	if r.Guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	refused := c.Protocol.MayNoteUnlisted(r.Lists) != handshake.GuardNone
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		_ context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		entry := handshake.AttachmentOf(decision.OrEmpty(nvs), f.Volume)
		// It was unlisted for that attachment; for another one the Node may list it again.
		if entry == nil || entry.AttachmentUID != uid || entry.State != volumesv1alpha1.AttachmentDetaching ||
			entry.Protocol.UnlistedGeneration > 0 {
			return nil, nil
		}
		forced := handshake.NodeOf(nvs, f.Volume).Entry.Forced
		look, boot := !forced || !refused, forced && entry.Protocol.UnlistedBootID == "" && isBootID(r.BootID)
		if !look && !boot {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			entry := handshake.AttachmentOf(nvs, f.Volume)
			if boot {
				entry.Protocol.UnlistedBootID = r.BootID
			}
			if look {
				nvs.Spec.Protocol.Fences++
				entry.Protocol.UnlistedGeneration = nvs.Generation + 1
			}
		}, nil
	})
	if err != nil {
		return fmt.Errorf("asking the agent to look at its node: %w", err)
	}
	n.Observe(nvs, f.Volume)
	if !n.Unlisted() && !(n.State.Entry.Forced && refused) {
		n.SetWait("", "")
	}
	return nil
}

// isBootID reports whether a node's name of its boot can be written down. Without one, a reboot ends no forced detach.
func isBootID(id string) bool { return id != "" && len(id) <= volumesv1alpha1.MaxBootIDLength }

// askAgent makes the agent check its node once more. The lock comes first: what the kubelet waits with counts as in use
// on the node once the earlier attachment is forgotten.
func (c *Controller) askAgent(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	if taken, err := c.takeLock(ctx, f, n); err != nil || !taken {
		return err
	}
	if n.State.Entry.Asked {
		return nil
	}
	uid := n.State.Entry.UID
	nvs, err := c.Writer.Apply(ctx, n.Name,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			state := handshake.NodeOf(nvs, f.Volume)
			if state.Entry.UID != uid || state.Entry.Asked || c.Protocol.MayAskAgain(state) != handshake.GuardNone {
				return nil, nil
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Spec.Protocol.Fences++
				handshake.AttachmentOf(nvs, f.Volume).Protocol.RebootGeneration = nvs.Generation + 1
			}, nil
		})
	if err != nil {
		return fmt.Errorf("asking the agent to look at its node once more: %w", err)
	}
	n.Observe(nvs, f.Volume)
	n.SetWait("", "")
	return nil
}
