/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "k8s.io/apimachinery/pkg/types"

// Guard names one check of the protocol. A refused act returns the guard that refused it; the
// exploration removes guards one at a time to show that each is needed.
type Guard string

// Guards of the cluster controller's acts.
const (
	// GuardNone refuses nothing.
	GuardNone Guard = ""
	// GuardStateExists: without a NodeVolumeState there is nowhere to write.
	GuardStateExists Guard = "StateExists"
	// GuardAttachmentLive: the attachment is there, attached and not terminating.
	GuardAttachmentLive Guard = "AttachmentLive"
	// GuardDetachingIsFinal: Detaching is never taken back for its UID.
	GuardDetachingIsFinal Guard = "DetachingIsFinal"
	// GuardOneAttachment: an entry that is Attached or still being detached under another UID, or a volume still
	// in use under another UID, has to go first.
	GuardOneAttachment Guard = "OneAttachment"
	// GuardForcedAwayReported: after a forced detach the agent first reports the old UID gone, or a new boot.
	GuardForcedAwayReported Guard = "ForcedAwayReported"
	// GuardClaimHeld: an exclusive volume's claim names this node.
	GuardClaimHeld Guard = "ClaimHeld"
	// GuardMoveFenced: the node that held the claim before has been fenced.
	GuardMoveFenced Guard = "MoveFenced"
	// GuardReported: an agent that never reported counts as having everything in use.
	GuardReported Guard = "Reported"
	// GuardNotInUse: no detach while the volume is in use, but on evidence.
	GuardNotInUse Guard = "NotInUse"
	// GuardDetachingStands: no delete before Detaching stands for the attachment's UID.
	GuardDetachingStands Guard = "DetachingStands"
	// GuardAttachmentGone: an entry is not removed and a claim not moved while the attachment is there.
	GuardAttachmentGone Guard = "AttachmentGone"
)

// Guards of the agent's acts.
const (
	// GuardEntryAttached: the agent takes a volume into use only while its entry is Attached.
	GuardEntryAttached Guard = "EntryAttached"
	// GuardUseRecorded: nothing is staged before inUse stands for the entry's UID.
	GuardUseRecorded Guard = "UseRecorded"
	// GuardReleased: inUse is cleared only when unpublish and unstage are known to be done.
	GuardReleased Guard = "Released"
	// GuardCallsEnded: inUse is cleared only after the deadline of every call whose end is not known.
	GuardCallsEnded Guard = "CallsEnded"
	// GuardMountTable: inUse is cleared only when the mount table agrees.
	GuardMountTable Guard = "MountTable"
)

// Protocol is the set of rules. Its zero value is the protocol; the exploration in this
// package's tests leaves out one guard at a time.
type Protocol struct {
	without Guard
}

// refuse returns g when the act must be refused: cond failed and g is in force.
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

// MayAttach says whether a VolumeAttachment may be created for the node. exclusive volumes
// need their claim first. It saves a useless publish; what makes an attachment usable is MayWriteAttached.
func (p Protocol) MayAttach(n Node, node string, exclusive bool, c Claim) Guard {
	return first(
		p.refuse(GuardStateExists, n.Exists),
		p.refuse(GuardForcedAwayReported, !n.Entry.Forced || ForcedAwayReported(n)),
		p.refuse(GuardOneAttachment, n.Entry.State == Absent || n.Entry.Detached || n.Entry.UID == ""),
		p.refuse(GuardClaimHeld, !exclusive || c.Exists && c.Holder == node),
	)
}

// MayWriteAttached says whether the entry of attachment a may be written as Attached into n.
// The caller has read, live and in this order, n, c, the state of the node that c was moved from
// (from; the zero Node where there is none), and a; and writes at the version of n.
func (p Protocol) MayWriteAttached(n Node, node string, exclusive bool, c Claim, from Node, a Attachment) Guard {
	return first(
		p.refuse(GuardStateExists, n.Exists),
		p.refuse(GuardDetachingIsFinal, !(n.Entry.State == Detaching && n.Entry.UID == a.UID)),
		p.refuse(GuardForcedAwayReported, !n.Entry.Forced || ForcedAwayReported(n)),
		p.refuse(GuardOneAttachment, replaceable(n, a.UID)),
		p.refuse(GuardClaimHeld, !exclusive || c.Exists && c.Holder == node),
		p.refuse(GuardMoveFenced, !exclusive || c.MovedFrom == "" || c.MovedFrom == node || Fenced(from)),
		p.refuse(GuardAttachmentLive, a.Exists && a.Attached && !a.Terminating),
	)
}

// replaceable: the entry may give way to one for uid, because it is that one, there is none, or it
// speaks of an attachment that is over and not in use any more.
func replaceable(n Node, uid types.UID) bool {
	if n.Use.InUse && n.Use.UID != uid {
		return false
	}
	return n.Entry.State == Absent || n.Entry.State == Attached && n.Entry.UID == uid || n.Entry.State == Detaching
}

// MayMarkDetaching says whether Detaching may be written for attachment uid into n, at the version
// of n. evidence means that something other than the agent's release vouches for the detach.
func (p Protocol) MayMarkDetaching(n Node, evidence bool) Guard {
	return first(
		p.refuse(GuardStateExists, n.Exists),
		p.refuse(GuardReported, n.Reported || evidence),
		p.refuse(GuardNotInUse, !n.Use.InUse || evidence),
	)
}

// MayDelete says whether the VolumeAttachment with this UID may be deleted, given the state as it
// was after Detaching was written. The DELETE carries the UID as a precondition.
func (p Protocol) MayDelete(n Node, uid types.UID) Guard {
	return p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.UID == uid)
}

// MayForget says whether the entry may be removed (or, when it was forced and the agent has not
// reported yet, marked detached), given the attachment as it was read live.
func (p Protocol) MayForget(n Node, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardAttachmentGone, !a.Exists || a.UID != n.Entry.UID),
	)
}

// MayMoveClaim says whether the claim c may be moved to another node: holder is the live state of the
// node that holds it, before the live state of the node that it was moved from, a the live attachment on the holder.
func (p Protocol) MayMoveClaim(c Claim, holder, before Node, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingStands, !holder.Exists || holder.Entry.State == Detaching && !holder.Entry.Detached),
		p.refuse(GuardMoveFenced, c.MovedFrom == "" || c.MovedFrom == c.Holder || Fenced(before)),
		p.refuse(GuardAttachmentGone, !a.Exists),
	)
}

// Fenced says whether nothing that was decided before the claim left n can still make the volume usable there.
func Fenced(n Node) bool {
	return !n.Exists || n.Entry.State == Absent || n.Entry.State == Detaching && n.Entry.Detached
}

// ForcedAwayReported says whether the agent has confirmed that nothing is left of a forced detach:
// it reports a new boot, or the volume not in use under the old UID.
func ForcedAwayReported(n Node) bool {
	if !n.Reported {
		return false
	}
	rebooted := n.Entry.BootID != "" && n.BootID != n.Entry.BootID
	return rebooted || !(n.Use.InUse && n.Use.UID == n.Entry.UID)
}

// MaySetInUse says whether the agent may write inUse for attachment uid, at the version of n.
func (p Protocol) MaySetInUse(n Node, uid types.UID) Guard {
	return p.refuse(GuardEntryAttached, n.Entry.State == Attached && n.Entry.UID == uid)
}

// MayStage says whether the agent may call the driver for attachment uid, given the last state that it wrote.
func (p Protocol) MayStage(n Node, uid types.UID) Guard {
	return p.refuse(GuardUseRecorded, n.Use.InUse && n.Use.UID == uid)
}

// Held is what the agent knows of its own hold on a volume.
type Held struct {
	// Released: unpublish and unstage are known to be done.
	Released bool
	// CallsEnded: no earlier driver call can still be running.
	CallsEnded bool
	// Mounted: the mount table shows the volume.
	Mounted bool
}

// MayClearInUse says whether the agent may take back inUse.
func (p Protocol) MayClearInUse(h Held) Guard {
	return first(
		p.refuse(GuardReleased, h.Released),
		p.refuse(GuardCallsEnded, h.CallsEnded),
		p.refuse(GuardMountTable, !h.Mounted),
	)
}
