/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// MayListAttached reports whether the volume may be put into the Node's volumesAttached. The caller has read, live and
// in this order, the Node and n, and writes at the version of the Node.
func (p Protocol) MayListAttached(n Node) Guard {
	return p.refuse(GuardEntryAttached, n.Entry.State == Attached)
}

// MayUnlistAttached reports whether the volume may be taken out of the Node's volumesAttached, at the version of the
// Node. The caller has read n before the Node. The write goes out as a change also where the Node did not list the
// volume, because it voids what was decided on an earlier version. A kubelet lists in use what its pods merely wait
// for; where the volume is not listed as attached, it cannot have begun to use it since it was taken out. Of a Node
// that was deleted nothing of that is known; its kubelet may be about to mount, until it is restarted and registers
// anew.
func (p Protocol) MayUnlistAttached(n Node, k KubeletLists) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardKubeletReleased, !k.Missing && (!k.InUse || !k.Attached) || n.Entry.Forced),
	)
}

// MayNoteUnlisted reports whether it may be written down that the volume was removed from volumesAttached, which asks
// the agent to check, after it was forced away; otherwise it may be, once it was taken out. k is what the Node listed
// at the version at which it was taken out: a kubelet that uses the volume, as it may after a forced detach, could go
// on to a call that it was about to make.
func (p Protocol) MayNoteUnlisted(k KubeletLists) Guard {
	return p.refuse(GuardKubeletReleased, !k.InUse && !k.Missing)
}

// MayAskAgain reports whether the agent may be asked, at the version of n, to check once more after a forced detach,
// also while the kubelet lists the volume in use, as it does for a pod that waits. Only what it sees after the
// attachment is gone shows it: a kubelet that found records of an earlier boot begins a call when it sees an
// attachment, listed or not.
func (p Protocol) MayAskAgain(n Node) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.Forced && n.Entry.Boot != ""),
		p.refuse(GuardAttachmentGone, n.Entry.Detached),
	)
}

// MayCountAsWaiting reports whether the agent, which has checked its node after it read n, may say of what it saw
// that the kubelet only waits with it. boot is the one in which it checks. It saw no mount, and no record of a stage
// that was written in this boot: a kubelet writes one before it calls the driver, and what begins after that finds
// the attachment gone. It counts as in use all the same, of the next attachment if of any: the kubelet goes on to
// mount.
func (p Protocol) MayCountAsWaiting(n Node, boot string) Guard {
	if n.Entry.State == Absent && n.Use.Waiting && !n.Use.Foreign {
		return GuardNone // as was reported of the attachment that was gone, and there was none since
	}
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.Forced),
		p.refuse(GuardAttachmentGone, n.Entry.Asked),
		p.refuse(GuardOtherBoot, n.Entry.Boot != "" && n.Entry.Boot != boot),
	)
}

// rebooted reports whether nothing of the attachment that was forced away can be on the node, whatever is in use there:
// it has booted since the Node stopped listing the volume, the agent has checked after the attachment was gone, and
// the kubelet only waits, if it does anything. A kubelet names its boot in the Node with the first word that it uses
// a volume, and asks only then what is attached: so one that names another boot later cannot have found the volume
// listed.
func (p Protocol) rebooted(n Node) bool {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching && n.Entry.Forced),
		p.refuse(GuardReported, n.Reported),
		p.refuse(GuardAgentLooked, n.LookedAgain),
		p.refuse(GuardOtherBoot, n.Boot != "" && n.Entry.Boot != "" && n.Boot != n.Entry.Boot),
		p.refuse(GuardUseWaiting, !n.Use.InUse || n.Use.Waiting && !n.Use.Foreign),
	) == GuardNone
}

// MayDeleteUnderKubelet is MayDelete where the kubelet publishes, after the caller has unlisted the volume. A kubelet
// that was restarted forgets volumes that are still mounted, and an agent sees them only when it checks. Until the
// unlisting the kubelet may call the driver, so the agent must check after it the mount table and the kubelet's
// own records: between the unlisting and the reading of n the caller increments spec.protocol.fences, which makes every
// agent look again. What is forced away does not wait for that; it keeps its name.
func (p Protocol) MayDeleteUnderKubelet(n Node, a Attachment) Guard {
	return first(
		p.MayDelete(n, a),
		p.refuse(GuardAgentLooked, n.Looked || n.Entry.Forced),
		p.refuse(GuardNotInUse, !n.InUse() || n.Entry.Forced),
	)
}
