/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package handshake is the protocol by which the cluster controller and a node's agent agree
// that no volume is mounted before it is attached and none is detached while it is in use.
//
// Both flags stand in the node's NodeVolumeState and every flag is set by a compare-and-swap
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
// An exclusive volume has one claim besides, which says on which node it may be usable. It is
// moved from A to B in three acts whose order matters, because a leader that was deposed may wake
// up between its reads and its write:
//
//  1. Detaching stands on A, not yet marked detached, and the attachment of A is gone;
//  2. the claim moves to B and remembers A (MovedFrom);
//  3. A's entry is removed, or marked detached: a write that voids every decision that was made on
//     a version of A's state from before the move.
//
// B is written Attached only after it was seen, read live after the claim, that step 3 is done.
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
	// BootID of the node when the detach was forced.
	BootID string
}

// Use is the agent's line for one volume in one NodeVolumeState.
type Use struct {
	// UID of the attachment that the agent speaks of.
	UID types.UID
	// InUse from before the first driver call until the last is known to be undone.
	InUse bool
}

// Node is one volume's part of one NodeVolumeState at one resourceVersion.
type Node struct {
	// Exists is false where there is no NodeVolumeState.
	Exists bool
	// Reported: the agent has reported under the object's present UID.
	Reported bool
	// BootID that the agent reported.
	BootID string
	Entry  Entry
	Use    Use
}

// Claim is an exclusive volume's claim.
type Claim struct {
	Exists bool
	// Holder is the node on which the volume may be usable.
	Holder string
	// MovedFrom is the node that held it before, empty when there was none.
	MovedFrom string
}

// Attachment is a VolumeAttachment as it was read live.
type Attachment struct {
	Exists      bool
	UID         types.UID
	Attached    bool
	Terminating bool
}
