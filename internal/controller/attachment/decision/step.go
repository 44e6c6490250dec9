/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

// Act is one kind of step.
type Act string

// Acts, those that make room first.
const (
	// Release removes the finalizer of intents that their node has released.
	Release Act = "Release"
	// ReleaseUnheard does so on a node whose agent is not heard, and that shows nothing of the volume.
	ReleaseUnheard Act = "ReleaseUnheard"
	// ReadState reads the node's state live, because the next decision must not rest on the cache.
	ReadState Act = "ReadState"
	// MarkLost writes Detaching for an attachment that is gone or going without us.
	MarkLost Act = "MarkLost"
	// MarkDetaching writes Detaching for an attachment that no intent wants.
	MarkDetaching Act = "MarkDetaching"
	// Discard writes Detaching for an attachment that no attacher has begun with, and that keeps another PersistentVolume
	// of the same handle away.
	Discard Act = "Discard"
	// Unlist removes a volume whose entry is Detaching from the Node's volumesAttached.
	Unlist Act = "Unlist"
	// Ask makes the agent of a node that has rebooted since a forced detach check its node once more.
	Ask Act = "Ask"
	// Delete deletes the attachment whose entry is Detaching.
	Delete Act = "Delete"
	// Forget removes the entry of an attachment that is gone, or marks it detached while the agent has yet to report.
	Forget Act = "Forget"
	// FreeName takes our finalizer off an attachment that was forced away.
	FreeName Act = "FreeName"
	// Attach creates the attachment.
	Attach Act = "Attach"
	// TakeUser makes the lock of a volume for a single user name the intent that is to use it.
	TakeUser Act = "TakeUser"
	// Hold makes an attachment of others one that Hawser counts on.
	Hold Act = "Hold"
	// Confirm writes Attached.
	Confirm Act = "Confirm"
	// List puts the volume into the Node's volumesAttached, for the kubelet.
	List Act = "List"
)

// Step is one thing to do on one node.
type Step struct {
	Act  Act
	Node *Node
	// Attachment that it is about, where there is one.
	Attachment *Attachment
	// Intents to release.
	Intents []*Intent
	// Evidence: the detach rests on the node's evidence, not on the agent's release.
	Evidence bool
}
