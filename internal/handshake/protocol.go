/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "k8s.io/apimachinery/pkg/types"

// Protocol is the set of rules. Its zero value is the protocol; the exploration in this
// package's tests leaves out one guard at a time.
type Protocol struct {
	// Kubelet: the kubelet publishes, too. It asks no controller, so only a check after the unlisting answers a forced
	// detach.
	Kubelet bool

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

// MayWriteAttached reports whether the entry of attachment a may be written as Attached into n. The caller has read,
// live and in this order, n, c and a; and writes at the version of n. exclusive is what the caller knows of the
// volume's access modes. They may have changed since: a volume that has a lock is exclusive, whatever its access
// modes say.
func (p Protocol) MayWriteAttached(n Node, node string, exclusive bool, c Lock, a Attachment) Guard {
	_, declared := n.Declares(a.UID)
	return first(
		p.refuse(GuardNotDeclared, !declared),
		p.refuse(GuardDetachingIsFinal, n.Entry.State != Detaching || n.Entry.UID != a.UID),
		p.refuse(GuardOneAttachment, n.Entry.State == Absent || n.Entry.UID == a.UID),
		p.refuse(GuardReported, n.Reported),
		p.refuse(GuardEarlierEnded, !n.UsesEarlier(a.UID)),
		p.refuse(GuardLockHeld, !exclusive && !c.Exists || c.Exists && c.Holder == node),
		p.refuse(GuardMoveFenced, c.MovedFrom == ""),
		p.refuse(GuardAttachmentLive, a.Exists && a.Attached && !a.Terminating),
	)
}

// MayMarkDetaching reports whether Detaching may be written for attachment uid into n, at the version
// of n. evidence means that something other than the agent's release vouches for the detach of this attachment;
// it was gathered after n was read, or is a declaration in n.
func (p Protocol) MayMarkDetaching(n Node, uid types.UID, evidence bool) Guard {
	return first(
		p.refuse(GuardOneAttachment, n.Entry.State == Absent || n.Entry.UID == uid || p.mayReplace(n, uid)),
		p.refuse(GuardReported, n.Reported || evidence),
		p.refuse(GuardNotInUse, !n.InUse() || evidence && (n.Use.UID == uid || n.Use.UID == "" || n.Entry.Forced)),
	)
}

// MayRelyOn reports whether an assertion about the node may replace its agent's report, at the version of n. The caller
// has read, live and in this order, n, the Node and the agent's Lease. It is not asked about what names the attachment
// itself: a declaration by an administrator, or an attachment that is lost. What is asserted of a node is about the
// machine that reports, not about another one that had its name before.
func (p Protocol) MayRelyOn(n Node, a Assertion) Guard {
	return first(
		p.refuse(GuardSameMachine, !n.Use.Foreign),
		p.refuse(GuardContradicted, a.Recorded && !a.Contradicted),
		p.refuse(GuardAgentSilent, n.Silent),
	)
}

// MayRelyOnCut reports whether it is evidence that the machine of the node has no access to the volume any more, at the
// version of n. The caller has read, live and in this order, n, the Node, by which addresses the machine reaches the
// volume's storage, and that they are cut. An agent that is heard contradicts nothing of that: whatever it writes to
// the volume does not arrive.
func (p Protocol) MayRelyOnCut(n Node) Guard {
	return p.refuse(GuardSameMachine, !n.Use.Foreign)
}

// CutHolds is refused where the detach rests on a cut that was lifted, and the node has not reported since that nothing
// is left.
// Until then no other node gets the volume if only one may have it: the caller asks this of each other node before it
// writes Attached, and has read live, after that node's state, whether the cut holds.
func (p Protocol) CutHolds(n Node) Guard {
	_, declared := n.Declares(n.Entry.UID)
	return p.refuse(GuardCutHolds,
		!n.Entry.Lifted || (declared || p.answered(n)) && !n.InUse() || p.rebooted(n))
}

// mayReplace reports whether the entry, whose attachment is gone, may make place for that of attachment uid. One that
// was forced and is all that says that a use beside it is none of its attachment has to free the name first; one that
// was declared makes place only for another that was.
func (p Protocol) mayReplace(n Node, uid types.UID) bool {
	if _, declared := n.Declares(uid); declared && n.DeclaredAway() {
		return true
	}
	return n.Entry.Detached && !n.DeclaredAway() &&
		(!p.Kubelet || p.ForcedAwayReported(n) && (!n.Entry.Forced || !n.InUse()))
}

// MayDelete reports whether the VolumeAttachment a may be deleted, given n as it was read after Detaching was
// written, and a. Both may be old by then: Detaching is final, and the process that decided may sleep before the
// DELETE, which carries a's UID as a precondition. Where Detaching rests on access that is cut, the caller has read
// live after n that it still is.
func (p Protocol) MayDelete(n Node, a Attachment) Guard {
	_, declared := n.Declares(a.UID)
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.UID == a.UID),
		p.refuse(GuardNameHeld, !n.Entry.Forced || a.NameHeld || p.MayFreeName(n, a) == GuardNone),
		p.refuse(GuardReported, n.Reported || n.Entry.Forced || declared),
		p.refuse(GuardNotInUse, !n.InUse() || n.Entry.Forced),
		p.CutHolds(n),
	)
}

// MayFreeName reports whether our finalizer may be taken off the attachment a, which was forced away. It asks for the
// agent's report, or a declaration, also where the entry that said so was lost; or for a reboot, which the entry
// records.
func (p Protocol) MayFreeName(n Node, a Attachment) Guard {
	_, declared := n.Declares(a.UID)
	return p.refuse(
		GuardForcedAwayReported, (declared || p.answered(n)) && !n.InUse() || n.Entry.UID == a.UID && p.rebooted(n),
	)
}

// MayMarkDetached reports whether the entry may be marked detached, given the attachment as it was
// read live after n.
func (p Protocol) MayMarkDetached(n Node, a Attachment) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardAttachmentGone, a.Gone() || a.UID != n.Entry.UID),
	)
}

// MayForget reports whether the entry may be removed, given the attachment as it was read live after n. An entry that
// was forced or declared stays, marked detached, until the agent has reported.
func (p Protocol) MayForget(n Node, a Attachment) Guard {
	return first(
		p.MayMarkDetached(n, a),
		p.refuse(GuardForcedAwayReported, p.ForcedAwayReported(n)),
		p.refuse(GuardNameFreed, !n.Entry.Forced || !n.Use.InUse || !a.Exists || a.UID != n.Entry.UID),
	)
}

// MayMoveLock reports whether the lock c may be moved to another node, or to no node, at the version of c. holder is
// the live state of the node that holds it, a the live attachment there; both are zero where no node holds it, and
// then there is no node to fence either: MovedFrom stays empty. What makes the move safe is the fence; asking for the
// holder's state here keeps a lock from leaving a node that still has the volume.
func (p Protocol) MayMoveLock(c Lock, holder Node, a Attachment) Guard {
	return first(
		p.refuse(GuardMoveFenced, c.MovedFrom == ""),
		p.refuse(GuardHolderDetached, holder.Entry.State != Attached),
		p.refuse(GuardAttachmentGone, a.Gone()),
		p.CutHolds(holder),
	)
}

// MayFence reports whether the node that the lock is being moved from may be fenced: spec.protocol.fences incremented
// at the version of from. The caller has read, live and in this order, the lock with MovedFrom set, from, and the
// attachment a there. MovedFrom is then cleared at the version of that lock.
func (p Protocol) MayFence(from Node, a Attachment) Guard {
	return first(
		p.refuse(GuardHolderDetached, from.Entry.State != Attached),
		p.refuse(GuardReported, !from.Exists || from.Reported || from.Entry.Forced),
		p.refuse(GuardNotInUse, !from.InUse() || from.Entry.Forced),
		p.refuse(GuardAttachmentGone, a.Gone()),
	)
}

// MayCollectLock reports whether the lock c, which nothing needs, may be deleted, at the version of c. It was moved
// to no node first, and its last holder is fenced: nothing that was decided while it named a node outlives it. fenced
// means that the caller has fenced the node that c was moved from, after it had read c.
func (p Protocol) MayCollectLock(c Lock, fenced bool) Guard {
	return first(
		p.refuse(GuardLockGivenUp, c.Holder == ""),
		p.refuse(GuardMoveFenced, c.MovedFrom == "" || fenced),
	)
}

// ForcedAwayReported reports whether nothing is left of a forced detach: there was none, or the agent reports nothing
// in use, under any UID. No report is too old for that: once the entry is Detaching the agent cannot take the volume
// into use, so what it did not use then it does not use now. A new boot ID beside inUse is not enough: an agent that
// still finds its inUse after a reboot may go on to stage. The first report of a new boot clears it. What was
// declared is over for all but the node itself: the declaring administrator cannot know what the next attachment will
// meet there. What counts after a reboot where the kubelet publishes, rebooted says.
func (p Protocol) ForcedAwayReported(n Node) bool {
	_, declared := n.Declares(n.Entry.UID)
	return !n.Entry.Forced && !declared || p.answered(n) && !n.Use.InUse || p.rebooted(n)
}

// answered: the agent's word counts for what befell the entry, if there is any.
func (p Protocol) answered(n Node) bool {
	return n.Reported && (!p.Kubelet || !n.Entry.Forced || n.Looked)
}

// MayReleaseIntent reports whether the release finalizer may be taken off an intent that is being deleted: n is its
// node as it was read after the deletion was seen, acknowledged that the agent answered on the intent that it no
// longer publishes it. evidence replaces the report of a node that cannot answer, and for one that was never there.
func (p Protocol) MayReleaseIntent(n Node, acknowledged, evidence bool) Guard {
	if acknowledged || evidence {
		return GuardNone
	}
	return first(
		p.refuse(GuardReported, n.Reported),
		p.refuse(GuardHolderDetached, n.Entry.State != Attached),
		p.refuse(GuardNotInUse, !n.InUse()),
	)
}

// MayReleaseUnheard reports whether the release finalizer may be taken off an intent that is being deleted on a node
// whose agent is not heard, as where none ever ran. The caller has read, live and in this order, n and the agent's
// Lease, which leased says is there, and restored says that any agent has reported a restore. The caller then writes
// to n, at the version of n, before it takes the finalizer off: a session that had begun meanwhile voids that write.
// An agent has its Lease before it takes a volume into use, and does not publish for an intent that is being deleted.
func (p Protocol) MayReleaseUnheard(n Node, leased, restored bool) Guard {
	return first(
		p.refuse(GuardNoLease, !n.Blank || !leased),
		p.refuse(GuardNotRestored, !restored),
		p.refuse(GuardHolderDetached, n.Exists && n.Entry.State == Absent),
		p.refuse(GuardNotInUse, !n.Use.InUse),
	)
}
