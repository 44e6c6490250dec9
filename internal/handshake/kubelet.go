/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// MayListAttached says whether the volume may be put into the Node's volumesAttached. The caller has read, live and
// in this order, the Node and n, and writes at the version of the Node.
func (p Protocol) MayListAttached(n Node) Guard {
	return p.refuse(GuardEntryAttached, n.Entry.State == Attached)
}

// MayUnlistAttached says whether the volume may be taken out of the Node's volumesAttached, at the version of the
// Node. The caller has read n before the Node. The write goes out as a change also where the Node did not list the
// volume, because it voids what was decided on an earlier version. A kubelet lists in use what its pods merely wait for; where
// the volume is not listed as attached, it cannot have begun to use it since it was taken out. Of a Node that was deleted
// nothing of that is known; its kubelet may be about to mount, until it is restarted and registers anew.
func (p Protocol) MayUnlistAttached(n Node, k KubeletLists) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardKubeletReleased, !k.Missing && (!k.InUse || !k.Attached) || n.Entry.Forced),
	)
}

// MayNoteUnlisted says whether it may be written down that the volume was taken out of volumesAttached, by which the agent is
// asked to look, after it was forced away; otherwise it may be, once it was taken out. k is what the Node listed at the version at which
// it was taken out: a kubelet that uses the volume, as it may after a forced detach, could go on to a call that it was about to make.
func (p Protocol) MayNoteUnlisted(k KubeletLists) Guard {
	return p.refuse(GuardKubeletReleased, !k.InUse && !k.Missing)
}

// MayDeleteUnderKubelet is MayDelete where the kubelet publishes, after the caller has unlisted the volume. A kubelet that was
// restarted forgets volumes that are still mounted, and an agent sees them only when it looks. Until the unlisting the
// kubelet may call the driver, so the agent must look after it, at the mount table and at the kubelet's own
// records: between the unlisting and the reading of n the caller increments spec.fences, which makes every agent
// look again. What is forced away does not wait for that; it keeps its name.
func (p Protocol) MayDeleteUnderKubelet(n Node, a Attachment) Guard {
	return first(
		p.MayDelete(n, a),
		p.refuse(GuardAgentLooked, n.Looked || n.Entry.Forced),
		p.refuse(GuardNotInUse, !n.InUse() || n.Entry.Forced),
	)
}
