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
// volume, because it voids what was decided on an earlier version.
func (p Protocol) MayUnlistAttached(n Node, k KubeletLists) Guard {
	return first(
		p.refuse(GuardDetachingStands, n.Entry.State == Detaching),
		p.refuse(GuardKubeletReleased, !k.InUse || n.Entry.Forced),
	)
}

// MayDeleteUnderKubelet is MayDelete where the kubelet publishes, after the caller has unlisted the volume. A kubelet that was
// restarted forgets volumes that are still mounted, and an agent sees them only when it looks. Until the unlisting the
// kubelet may call the driver, so the agent must look after it, at the mount table and at the kubelet's own
// records: between the unlisting and the reading of n the caller increments spec.fences, which makes every agent
// look again.
func (p Protocol) MayDeleteUnderKubelet(n Node, a Attachment) Guard {
	return first(
		p.MayDelete(n, a),
		p.refuse(GuardAgentLooked, n.Looked || n.Entry.Forced),
		p.refuse(GuardNotInUse, !n.Use.InUse || n.Entry.Forced),
	)
}
