/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// gatherListed finds, in Replace, the Nodes that list the volume as attached, whether it is or not.
func (c *Controller) gatherListed(ctx context.Context, f *Facts, _ []corev1.PersistentVolume) error {
	if !f.Replace {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the Nodes that list %s: %w", f.Volume, err)
	}
	for i := range nodes.Items {
		f.node(nodes.Items[i].Name)
	}
	return nil
}

// readLists reads live what the Node lists of the volume.
func (c *Controller) readLists(ctx context.Context, f *Facts, n *Node) error {
	node := &corev1.Node{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: n.Name}, node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	n.Lists = listed(node)[corev1.UniqueVolumeName(f.Volume)]
	n.Lists.Missing = node.UID == ""
	return nil
}

// gatherLists reads from the cache what the Node lists of the volume, and who attaches for it.
func (c *Controller) gatherLists(ctx context.Context, f *Facts, n *Node) error {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", n.Name, err)
		}
		n.Lists.Missing = true
		return nil
	}
	n.Managed = managed(node)
	n.Lists, n.BootID = listed(node)[corev1.UniqueVolumeName(f.Volume)], node.Status.NodeInfo.BootID
	return nil
}

// list tells the kubelet that it may mount the volume.
func (c *Controller) list(ctx context.Context, f *Facts, n *Node) error {
	r, err := c.Lister.List(ctx, n.Name, f.Volume)
	if err != nil {
		return fmt.Errorf("listing the volume in volumesAttached: %w", err)
	}
	n.Lists = r.Lists
	if !r.Lists.Attached {
		n.wait("", "")
	}
	return nil
}

// toUnlist says whether the volume has yet to be taken out of volumesAttached, and the agent to be asked to look. What is forced
// away from a kubelet that goes on using it is not asked for before it has let go.
func toUnlist(f *Facts, p handshake.Protocol, n *Node) bool {
	if !f.Replace || n.unlisted() || n.Entry.AttachmentName == "" && !n.Lists.Attached && !n.State.Entry.Forced {
		return false
	}
	return !n.State.Entry.Forced || n.Lists.Attached || p.MayNoteUnlisted(n.Lists) == handshake.GuardNone ||
		n.State.Entry.Boot == "" && n.BootID != ""
}

// unlist takes the volume out of volumesAttached, and then writes that down so that the agent looks at its node: only what
// it sees after that is no use by the kubelet. What was forced away from a kubelet that goes on using it is not looked for yet,
// but the boot is written down: the next one's kubelet cannot have found the volume listed.
func (c *Controller) unlist(ctx context.Context, f *Facts, n *Node) error {
	uid := n.State.Entry.UID
	r, err := c.Lister.Unlist(ctx, n.Name, f.Volume)
	if err != nil {
		return fmt.Errorf("taking the volume out of volumesAttached: %w", err)
	}
	n.Lists, n.BootID = r.Lists, r.BootID
	if r.Guard != handshake.GuardNone {
		n.wait("", "")
		return nil
	}
	refused := c.Protocol.MayNoteUnlisted(r.Lists) != handshake.GuardNone
	nvs, err := c.Writer.Apply(ctx, n.Name, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		entry := handshake.AttachmentOf(orEmpty(nvs), f.Volume)
		// It was unlisted for that attachment; for another one the Node may list it again.
		if entry == nil || entry.AttachmentUID != uid || entry.State != volumesv1alpha1.AttachmentDetaching || entry.UnlistedGeneration > 0 {
			return nil, nil
		}
		forced := handshake.NodeOf(nvs, f.Volume).Entry.Forced
		look, boot := !forced || !refused, forced && entry.UnlistedBootID == "" && r.BootID != ""
		if !look && !boot {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			entry := handshake.AttachmentOf(nvs, f.Volume)
			if boot {
				entry.UnlistedBootID = r.BootID
			}
			if look {
				nvs.Spec.Fences++
				entry.UnlistedGeneration = nvs.Generation + 1
			}
		}, nil
	})
	if err != nil {
		return fmt.Errorf("asking the agent to look at its node: %w", err)
	}
	n.observe(nvs, f.Volume)
	if !n.unlisted() && !(n.State.Entry.Forced && refused) {
		n.wait("", "")
	}
	return nil
}

// toAsk says whether the agent of a node that has booted since has to look once more, now that the attachment is gone, so
// that what waits there can have the next one. An exclusive volume has to be free everywhere else.
func toAsk(f *Facts, p handshake.Protocol, n, chosen *Node) bool {
	e := n.State.Entry
	if !f.Replace || e.Asked || n.State.Boot == e.Boot || p.ForcedAwayReported(n.State) {
		return false
	}
	return mayComeBack(f, n, chosen) && p.MayAskAgain(n.State) == handshake.GuardNone
}

// mayComeBack says whether the node is the next to have the volume.
func mayComeBack(f *Facts, n, chosen *Node) bool {
	return n.candidate() != nil && (!f.Exclusive || !f.lockUnreadable() && n == chosen && len(blockers(f, n)) == 0)
}

// ask has the agent look once more. The lock comes first: what the kubelet waits with counts as in use on the node once the
// earlier attachment is forgotten.
func (c *Controller) ask(ctx context.Context, f *Facts, n *Node) error {
	if taken, err := c.takeLock(ctx, f, n); err != nil || !taken {
		return err
	}
	if n.State.Entry.Asked {
		return nil
	}
	uid := n.State.Entry.UID
	nvs, err := c.Writer.Apply(ctx, n.Name, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		state := handshake.NodeOf(nvs, f.Volume)
		if state.Entry.UID != uid || state.Entry.Asked || c.Protocol.MayAskAgain(state) != handshake.GuardNone {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Fences++
			handshake.AttachmentOf(nvs, f.Volume).RebootGeneration = nvs.Generation + 1
		}, nil
	})
	if err != nil {
		return fmt.Errorf("asking the agent to look at its node once more: %w", err)
	}
	n.observe(nvs, f.Volume)
	n.wait("", "")
	return nil
}
