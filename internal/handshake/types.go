/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package handshake is the protocol with which the cluster controller and a node's agent agree
// that no volume is mounted before it is attached and none is detached while it is in use.
//
// Both flags are in the node's NodeVolumeState and every flag is set by a compare-and-swap
// that carries the resourceVersion it was decided on. Every flag speaks of one VolumeAttachment,
// named by its UID. This package decides; it never reads or writes an API object itself, and the
// same decisions are explored exhaustively in its tests.
//
// The life of one attachment, and whose act each arrow is (C controller, A agent):
//
//	        C Attached          A inUse             A clear inUse        C Detaching
//	(none) ------------> entry ---------> staged ... ------------> entry ------------> Detaching
//	                       |                                                              | C delete, gone
//	                       +------------------- C Detaching (not inUse) ----------------->+--> (none)
//
// # Moving an exclusive volume
//
// An exclusive volume has one lock besides, which says on which node it may be usable. It moves
// from A to B in three writes whose order matters, because a leader that was deposed may wake up
// between its reads and its write:
//
//  1. the lock names B and remembers A (MovedFrom), by compare-and-swap on the lock;
//  2. the fence: after that lock was read, spec.protocol.fences of A's NodeVolumeState is incremented, at a version
//     where A is not Attached and not in use, and with A's attachment gone;
//  3. MovedFrom is cleared, at the version of the lock that was read before the fence.
//
// Nothing is attached, and no entry written Attached, while MovedFrom is set. A process that decided on Attached for
// A had read A's state before a lock that still named A, so the fence voids its write; a process that reads A's state
// later finds a lock that names B. Where A has no NodeVolumeState, having read that live is the fence. A process that
// dies between the writes leaves them to the next one, which repeats them.
//
// # After a forced detach
//
// The name of a VolumeAttachment is the same in each of its lives, and a create has no version to
// be decided on. So before an attachment that is forced away is deleted it gets a finalizer of ours: the driver
// unpublishes, but the name stays taken until the agent has reported that nothing of the old mount is left.
// Until then not even a leader that was deposed long ago can open the node's access again.
//
// # What the agent relies on
//
// A write whose answer was lost, or whose writer died, may still arrive. So an agent relies only on inUse
// that a write of its own process was acknowledged to set, with no write of unknown outcome
// since; each of its writes increments status.protocol.reports, which makes it a change and voids what is still on its
// way.
package handshake

import "k8s.io/apimachinery/pkg/types"

// State of an attachment's entry in a NodeVolumeState.
type State string

const (
	// Absent means that there is no entry.
	Absent State = ""
	// Attached means that the node may use the volume.
	Attached State = "Attached"
	// Detaching is final for its UID.
	Detaching State = "Detaching"
)

// Entry is the controller's line for one volume in one NodeVolumeState.
type Entry struct {
	State State
	UID   types.UID
	// Detached: the attachment was seen to be gone.
	Detached bool
	// Forced: Detaching rests on evidence other than the agent's release.
	Forced bool
	// Declared: that evidence is about the machine, by an administrator or a fence, not the passing of time.
	Declared bool
	// Lifted: Detaching rests on access that was cut, and the cut was lifted. Nothing keeps what the node has mounted from
	// the volume.
	Lifted bool
	// Boot that the Node named when the volume was taken out of its volumesAttached after a forced detach; empty where
	// that is not known.
	Boot string
	// Asked: the attachment was gone, and the agent was asked to check after that.
	Asked bool
}

// Use is the agent's line for one volume in one NodeVolumeState.
type Use struct {
	// UID of the attachment that the agent speaks of.
	UID types.UID
	// InUse from before the first driver call until the last is known to be undone.
	InUse bool
	// Waiting: nothing of it belongs to an attachment that was gone when the agent checked; the kubelet waits for the
	// next one.
	Waiting bool
	// Foreign: another machine under the node's name uses the volume. The agent that reports knows nothing of it, and
	// carries the line on.
	Foreign bool
}

// Node is one volume's part of one NodeVolumeState at one resourceVersion.
type Node struct {
	// Exists is false where there is no NodeVolumeState.
	Exists bool
	// Reported: the agent has reported under the object's present UID. To the manager it counts only if it has heard the
	// agent since it began to listen, and n is no older than what it heard.
	Reported bool
	// Blank: no agent has written to this NodeVolumeState yet.
	Blank bool
	// Unconfirmed: the agent began a session, and the manager has not confirmed it yet.
	Unconfirmed bool
	// Silent: the manager has marked the agent as unreachable, and the agent has written nothing since. A session begins
	// with a write, so the agent has none at this version.
	Silent bool
	// Looked: the volume was taken out of the Node's volumesAttached, and the agent has checked its node after it
	// saw a spec that was written after that.
	Looked bool
	// LookedAgain: the agent has checked after it saw a spec that records the attachment as gone.
	LookedAgain bool
	// Boot in which the agent last checked.
	Boot  string
	Entry Entry
	Use   Use
	// Declared are the attachments that an administrator has declared released on this node, of whatever volume.
	Declared []Declaration
}

// Declaration is an administrator's word that a node has let go of one attachment, whatever the node itself says.
type Declaration struct {
	UID types.UID
	// Reason that the administrator gave.
	Reason string
}

// Declares reports whether an administrator has declared the attachment released, and the reason given.
func (n Node) Declares(uid types.UID) (reason string, declared bool) {
	for _, d := range n.Declared {
		if d.UID == uid {
			return d.Reason, true
		}
	}
	return "", false
}

// InUse reports whether the controller counts the volume as in use on the node: the agent says so, and not every
// attachment has been declared released that it may speak of, its own and the entry's. A kubelet that goes on with an
// old mount does not distinguish the two, and may have no UID to name at all. It is no rule for the agent.
func (n Node) InUse() bool {
	if !n.Use.InUse {
		return false
	}
	_, use := n.Declares(n.Use.UID)
	_, entry := n.Declares(n.Entry.UID)
	switch {
	case n.Entry.State == Absent:
		return !use
	case n.Use.UID == "":
		return !entry
	}
	return !use || !entry
}

// UsesEarlier reports whether the agent says that an attachment other than uid is in use, declared released or not. A
// use that names none, as of a kubelet whose volume others attached, becomes that of the next attachment.
func (n Node) UsesEarlier(uid types.UID) bool {
	return n.Use.InUse && n.Use.UID != "" && n.Use.UID != uid
}

// DeclaredAway reports whether the entry's attachment is detached and was declared released: to all but the node
// itself the entry is over. It stays until the agent has reported, or its node is gone.
func (n Node) DeclaredAway() bool {
	_, declared := n.Declares(n.Entry.UID)
	return n.Entry.Detached && declared
}

// Lock is an exclusive volume's lock.
type Lock struct {
	Exists bool
	// Holder is the node on which the volume may be usable; empty when it is none.
	Holder string
	// MovedFrom is the node that held it before and that has not been fenced yet; empty once it has.
	MovedFrom string
	// User of a volume for a single user: the UID of the one intent that may be pinned to it; empty where none was named
	// yet.
	User types.UID
}

// Attachment is a VolumeAttachment as it was read live.
type Attachment struct {
	Exists      bool
	UID         types.UID
	Attached    bool
	Terminating bool
	// NameHeld: our finalizer keeps the name taken after a forced detach.
	NameHeld bool
	// Unpublished: terminating, and no finalizer but ours is left, so the driver's attacher is done with it.
	Unpublished bool
}

// Gone reports whether nothing is published through the attachment any more, nor ever will be.
func (a Attachment) Gone() bool {
	return !a.Exists || a.Terminating && a.Unpublished
}

// Intent is an intent as it was read live, by its UID.
type Intent struct {
	Exists   bool
	Deleting bool
}

// KubeletLists is what the Node object lists for one volume, where the kubelet publishes.
type KubeletLists struct {
	// Attached: the Node's volumesAttached, which we write.
	Attached bool
	// InUse: the Node's volumesInUse, which the kubelet writes.
	InUse bool
	// Missing: there is no Node. It may have listed anything when it was deleted, and its kubelet may go on.
	Missing bool
}

// Assertion is what is said of a whole node in place of its agent's report: that its machine is off, is gone, or was
// unreachable for long enough. It may be wrong; the agent contradicts it by being heard.
type Assertion struct {
	// Recorded: the manager has recorded this one, together with what it had heard last of the agent.
	Recorded bool
	// Contradicted: the agent was heard since.
	Contradicted bool
}

// Lapsed is the assertion that rests on nothing but time without a sign of the agent. The agent voids it by being
// heard: the time then begins again.
var Lapsed = Assertion{Recorded: true}
