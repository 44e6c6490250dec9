/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"github.com/hawser-io/hawser/internal/handshake"
)

// attachSteps attaches a volume and lets the node use it, one step at a time.
func attachSteps(f *Facts, n *Node) []Step {
	i := n.Candidate()
	switch {
	case i == nil:
		return nil
	case n.State.Entry.State == handshake.Attached:
		switch {
		case f.ListedForAnother(n):
			return nil
		case f.SingleUser && !f.Locked(n):
			return []Step{{Act: TakeUser, Node: n}}
		case Stale(f, n, i):
			return []Step{{Act: Confirm, Node: n, Attachment: n.AttachmentOf(n.State.Entry.UID)}}
		case f.Replace && n.Entry.AttachmentName != "" && !n.Lists.Attached && n.forKubelet():
			return []Step{{Act: List, Node: n}}
		}
		return nil
	case !attachable(f, n):
		return nil
	case !f.AttachRequired:
		return []Step{{Act: Confirm, Node: n}}
	}
	a := n.Usable(f)
	switch {
	case len(n.Attachments) == 0:
		return []Step{{Act: Attach, Node: n}}
	case a == nil:
		// The one that goes away has to be gone first.
		return nil
	case !a.Held:
		return []Step{{Act: Hold, Node: n, Attachment: a}}
	case a.Attached:
		return []Step{{Act: Confirm, Node: n, Attachment: a}}
	}
	return nil
}

// attachable: nothing prevents an attachment to the node. Without the admission policies nothing would protect it.
// Nor is anything attached to a node that an administrator tainted as off. What was declared released is free for other
// nodes; this one gets the volume when its agent has reported.
func attachable(f *Facts, n *Node) bool {
	inherited := n.inherits() && !(f.SingleUser && n.Candidate().ByAgent())
	return f.PolicyMissing == "" && !n.Tainted && n.State.Reported && n.State.Entry.State == handshake.Absent &&
		(!n.State.Use.InUse || inherited) &&
		!(f.AttachRequired && n.DriverMissing) && len(blockers(f, n)) == 0 && !n.Limit.Reached()
}

// blockers are the other nodes on which an exclusive volume is, or may be.
func blockers(f *Facts, n *Node) []*Node {
	if !f.Exclusive {
		return nil
	}
	var blocking []*Node
	for _, m := range f.Nodes {
		if m != n && occupied(m) {
			blocking = append(blocking, m)
		}
	}
	return blocking
}

// occupied: what is not known counts as held.
func occupied(m *Node) bool {
	for i := range m.Attachments {
		if !m.Attachments[i].Gone() {
			return true
		}
	}
	return m.State.Entry.State == handshake.Attached || m.State.InUse() && (!m.State.Entry.Forced || m.State.Entry.Lifted)
}
