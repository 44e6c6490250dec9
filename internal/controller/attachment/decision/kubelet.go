/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"github.com/hawser-io/hawser/internal/handshake"
)

// ToUnlist reports whether the volume has yet to be removed from volumesAttached, and the agent to be asked to check.
// What is forced away from a kubelet that goes on using it is not asked for before it has let go.
func ToUnlist(f *Facts, p handshake.Protocol, n *Node) bool {
	if !f.Replace || n.Unlisted() || n.Entry.AttachmentName == "" && !n.Lists.Attached && !n.State.Entry.Forced {
		return false
	}
	return !n.State.Entry.Forced || n.Lists.Attached || p.MayNoteUnlisted(n.Lists) == handshake.GuardNone ||
		n.State.Entry.Boot == "" && n.BootID != ""
}

// toAsk reports whether the agent of a node that has booted since has to check once more, now that the attachment is
// gone, so that what waits there can have the next one. An exclusive volume has to be free everywhere else.
func toAsk(f *Facts, p handshake.Protocol, n, chosen *Node) bool {
	e := n.State.Entry
	if !f.Replace || e.Asked || n.State.Boot == e.Boot || p.ForcedAwayReported(n.State) {
		return false
	}
	return nextHolder(f, n, chosen) && p.MayAskAgain(n.State) == handshake.GuardNone
}

// nextHolder reports whether the node is the next to have the volume.
func nextHolder(f *Facts, n, chosen *Node) bool {
	return n.Candidate() != nil && (!f.Exclusive || !f.LockUnknown() && n == chosen && len(blockers(f, n)) == 0)
}
