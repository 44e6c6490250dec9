/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "k8s.io/apimachinery/pkg/types"

// Protocol is the set of rules. Its zero value is the protocol; the exploration in this
// package's tests leaves out one guard at a time.
type Protocol struct {
	without Guard
}

// refuse returns g when the act must be refused: its condition failed and g is in force.
func (p Protocol) refuse(g Guard, ok bool) Guard {
	if ok || p.without == g {
		return GuardNone
	}
	return g
}

func first(guards ...Guard) Guard {
	for _, g := range guards {
		if g != GuardNone {
			return g
		}
	}
	return GuardNone
}

// MayAttach says whether a VolumeAttachment may be created for the node. It saves a useless publish; nothing
// depends on it, because a create cannot be tied to what it was decided on.
func (p Protocol) MayAttach(n Node, node string, exclusive bool, c Claim) Guard {
	return first(
		p.refuse(GuardOneAttachment, n.Entry.State == Absent),
		p.refuse(GuardForcedAwayReported, ForcedAwayReported(n)),
		p.refuse(GuardClaimHeld, !exclusive || c.Exists && c.Holder == node),
		p.refuse(GuardMoveFenced, !exclusive || c.MovedFrom == ""),
	)
}

// MayWriteAttached says whether the entry of attachment a may be written as Attached into n.
// The caller has read, live and in this order, n, c and a; and writes at the version of n.
func (p Protocol) MayWriteAttached(n Node, node string, exclusive bool, c Claim, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingIsFinal, n.Entry.State != Detaching || n.Entry.UID != a.UID),
		p.refuse(GuardOneAttachment, n.Entry.State == Absent || n.Entry.UID == a.UID),
		p.refuse(GuardClaimHeld, !exclusive || c.Exists && c.Holder == node),
		p.refuse(GuardMoveFenced, !exclusive || c.MovedFrom == ""),
		p.refuse(GuardAttachmentLive, a.Exists && a.Attached && !a.Terminating),
	)
}

// MayMarkDetaching says whether Detaching may be written for attachment uid into n, at the version
// of n. evidence means that something other than the agent's release vouches for the detach of this attachment;
// it was gathered after n was read.
func (p Protocol) MayMarkDetaching(n Node, uid types.UID, evidence bool) Guard {
	return first(
		p.refuse(GuardOneAttachment, n.Entry.State == Absent || n.Entry.UID == uid || n.Entry.Detached),
		p.refuse(GuardReported, n.Reported || evidence),
		p.refuse(GuardNotInUse, !n.Use.InUse || evidence && (n.Use.UID == uid || n.Entry.Forced)),
	)
}

// MayDelete says whether the VolumeAttachment a may be deleted, given n as it was read live after
// Detaching was written and a as it was read after that. The DELETE carries a's UID as a precondition.
func (p Protocol) MayDelete(n Node, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.UID == a.UID),
		p.refuse(GuardNameHeld, ForcedAwayReported(n) || a.NameHeld),
	)
}

// MayFreeName says whether our finalizer may be taken off an attachment that was forced away. It asks for the
// agent's report also where the entry that said so was lost.
func (p Protocol) MayFreeName(n Node) Guard {
	return p.refuse(GuardForcedAwayReported, n.Reported && !n.Use.InUse)
}

// MayMarkDetached says whether the entry may be marked detached, given the attachment as it was
// read live after n.
func (p Protocol) MayMarkDetached(n Node, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardAttachmentGone, a.Gone() || a.UID != n.Entry.UID),
	)
}

// MayForget says whether the entry may be removed, given the attachment as it was read live after n. An entry that
// was forced stays, marked detached, until the agent has reported.
func (p Protocol) MayForget(n Node, a Attachment) Guard {
	return first(
		p.MayMarkDetached(n, a),
		p.refuse(GuardForcedAwayReported, ForcedAwayReported(n)),
	)
}

// MayMoveClaim says whether the claim c may be moved to another node, at the version of c. holder is the live state of the
// node that holds it, a the live attachment there. What makes the move safe is the fence; asking for the holder's
// state here keeps a claim from leaving a node that still has the volume.
func (p Protocol) MayMoveClaim(c Claim, holder Node, a Attachment) Guard {
	return first(
		p.refuse(GuardMoveFenced, c.MovedFrom == ""),
		p.refuse(GuardHolderDetached, holder.Entry.State != Attached),
		p.refuse(GuardAttachmentGone, a.Gone()),
	)
}

// MayFence says whether the node that the claim is being moved from may be fenced: spec.fences incremented at the
// version of from. The caller has read, live and in this order, the claim with MovedFrom set, from, and the
// attachment a there. MovedFrom is then cleared at the version of that claim.
func (p Protocol) MayFence(from Node, a Attachment) Guard {
	return first(
		p.refuse(GuardHolderDetached, from.Entry.State != Attached),
		p.refuse(GuardReported, !from.Exists || from.Reported || from.Entry.Forced),
		p.refuse(GuardNotInUse, !from.Use.InUse || from.Entry.Forced),
		p.refuse(GuardAttachmentGone, a.Gone()),
	)
}

// ForcedAwayReported says whether nothing is left of a forced detach: none stands, or the agent reports nothing in
// use, under any UID. No report is too old for that: once Detaching stands the agent cannot take the
// volume into use, so what it did not use then it does not use now. A new boot ID beside inUse is not enough: an agent that
// still finds its inUse after a reboot may go on to stage. The first report of a new boot clears it.
func ForcedAwayReported(n Node) bool {
	return !n.Entry.Forced || n.Reported && !n.Use.InUse
}

// MayReleaseIntent says whether the release finalizer may be taken off an intent that is being deleted: n is its
// node as it was read after the deletion was seen, acknowledged that the agent answered on the intent
// that it no longer publishes it. evidence stands in for a node that cannot answer, and for one that was never there.
func (p Protocol) MayReleaseIntent(n Node, acknowledged, evidence bool) Guard {
	if acknowledged || evidence {
		return GuardNone
	}
	return first(
		p.refuse(GuardReported, n.Reported),
		p.refuse(GuardHolderDetached, n.Entry.State != Attached),
		p.refuse(GuardNotInUse, !n.Use.InUse),
	)
}
