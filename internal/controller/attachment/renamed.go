/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventNodeRenamed is the reason of an event on the NodeVolumeState of a node that is out of reach: what is attached to it is in
// use under another node's name.
const EventNodeRenamed = "NodeRenamed"

// doubtSilence withdraws evidence that rests on a node's silence if another node's agent reports the same attachment in use:
// the machine runs on under another name. Only an administrator's declaration is stronger.
func doubtSilence(f *Facts) {
	for _, n := range f.Nodes {
		if n.Evidence == nil || n.Evidence.Type == volumesv1alpha1.EvidenceDeclaredByAdministrator {
			continue
		}
		m := f.usedElsewhere(n)
		if m == nil {
			continue
		}
		n.Evidence, n.EvidenceDue, n.RenamedTo = nil, 0, m.Name
	}
}

// reportRenamed puts an event on the NodeVolumeState of a node that goes on under another name.
func (c *Controller) reportRenamed(ctx context.Context, f *Facts, n *Node) {
	if n.RenamedTo == "" {
		return
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs); err == nil {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventNodeRenamed, "Detach",
			"not detaching %s: node %s is out of reach, but node %s reports the volume in use by the same attachment, as it does when a node is renamed",
			f.Volume, n.Name, n.RenamedTo)
	}
}

// usedElsewhere returns a node that uses the volume by what is attached to n; nil when there is none. A use of an exclusive
// volume by no attachment that is known, on a node that has none, is taken for one.
func (f *Facts) usedElsewhere(n *Node) *Node {
	uids := map[types.UID]bool{}
	if n.State.Entry.State != handshake.Absent {
		uids[n.State.Entry.UID] = true
	}
	for i := range n.Attachments {
		uids[n.Attachments[i].UID] = true
	}
	for _, m := range f.Nodes {
		if use := m.State.Use; m != n && use.InUse && (uids[use.UID] || use.UID == "" && f.Exclusive && len(m.Attachments) == 0) {
			return m
		}
	}
	return nil
}
