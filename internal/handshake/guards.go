/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// Guard names one check of the protocol. A refused act returns the guard that refused it; the
// exploration removes guards one at a time to show that each is needed.
type Guard string

// Guards of the cluster controller's acts.
const (
	// GuardNone refuses nothing.
	GuardNone Guard = ""
	// GuardAttachmentLive: the attachment is there, attached and not terminating.
	GuardAttachmentLive Guard = "AttachmentLive"
	// GuardDetachingIsFinal: Detaching is never taken back for its UID.
	GuardDetachingIsFinal Guard = "DetachingIsFinal"
	// GuardNotDeclared: what an administrator declared released is not taken into use any more.
	GuardNotDeclared Guard = "NotDeclared"
	// GuardOneAttachment: an entry that speaks of another attachment has to go first.
	GuardOneAttachment Guard = "OneAttachment"
	// GuardForcedAwayReported: after a forced detach the agent first reports that it has nothing in use.
	GuardForcedAwayReported Guard = "ForcedAwayReported"
	// GuardEarlierEnded: nothing is attached to a node that still uses an earlier attachment.
	GuardEarlierEnded Guard = "EarlierEnded"
	// GuardNameHeld: an attachment that is forced away keeps its name taken.
	GuardNameHeld Guard = "NameHeld"
	// GuardLockHeld: an exclusive volume's lock names this node.
	GuardLockHeld Guard = "LockHeld"
	// GuardMoveFenced: the node that the lock was moved from has been fenced.
	GuardMoveFenced Guard = "MoveFenced"
	// GuardLockGivenUp: a lock is deleted only when it names no node.
	GuardLockGivenUp Guard = "LockGivenUp"
	// GuardHolderDetached: the node that holds the lock has no Attached entry any more.
	GuardHolderDetached Guard = "HolderDetached"
	// GuardReported: an agent that never reported counts as having everything in use.
	GuardReported Guard = "Reported"
	// GuardNotInUse: no detach while the volume is in use, but on evidence.
	GuardNotInUse Guard = "NotInUse"
	// GuardAgentSilent: nothing that is asserted of a node overrules the report of an agent that is heard.
	GuardAgentSilent Guard = "AgentSilent"
	// GuardContradicted: what the agent has contradicted once is void, also when it falls silent later.
	GuardContradicted Guard = "Contradicted"
	// GuardCutHolds: what was forced away because its access was cut goes no further once the cut is lifted, before the
	// agent has reported.
	GuardCutHolds Guard = "CutHolds"
	// GuardDetachingStands: no delete before the entry is Detaching for the attachment's UID.
	GuardDetachingStands Guard = "DetachingStands"
	// GuardHeard: after a restore no agent takes a volume into use before the manager has heard every agent.
	GuardHeard Guard = "Heard"
	// GuardUsedElsewhere: what an agent uses on one node is not confirmed as another node's.
	GuardUsedElsewhere Guard = "UsedElsewhere"
	// GuardNoLease: an agent that has a Lease and did not report to this NodeVolumeState may use anything.
	GuardNoLease Guard = "NoLease"
	// GuardNotRestored: after a restore neither a NodeVolumeState nor a Lease says what the node did.
	GuardNotRestored Guard = "NotRestored"
	// GuardAttachmentGone: an entry is not removed and a node not fenced while the attachment is there.
	GuardAttachmentGone Guard = "AttachmentGone"
)

// Guards of the agent's acts.
const (
	// GuardEntryAttached: the volume is taken into use only while its entry is Attached.
	GuardEntryAttached Guard = "EntryAttached"
	// GuardConfirmed: nothing is taken into use before the manager has confirmed the agent's session.
	GuardConfirmed Guard = "Confirmed"
	// GuardSameMachine: what another machine of the node's name uses is neither taken over nor dropped, but on the word of
	// an administrator.
	GuardSameMachine Guard = "SameMachine"
	// GuardUseRecorded: nothing is staged before inUse is set for the entry's UID.
	GuardUseRecorded Guard = "UseRecorded"
	// GuardIntentLive: nothing is published for an intent that is gone or being deleted.
	GuardIntentLive Guard = "IntentLive"
	// GuardReleased: inUse is cleared only when unpublish and unstage are known to be done.
	GuardReleased Guard = "Released"
	// GuardCallsEnded: inUse is cleared only after the deadline of every call whose end is not known.
	GuardCallsEnded Guard = "CallsEnded"
	// GuardMountTable: inUse is cleared only when the mount table agrees.
	GuardMountTable Guard = "MountTable"
)

// Guards of the cluster controller's acts where the kubelet publishes.
const (
	// GuardKubeletReleased: the Node's volumesInUse does not list the volume.
	GuardKubeletReleased Guard = "KubeletReleased"
	// GuardAgentLooked: the agent checked its node after the unlisting, because a kubelet that was restarted forgets.
	GuardAgentLooked Guard = "AgentLooked"
	// GuardOtherBoot: the node has booted since the volume was taken out of the Node's volumesAttached.
	GuardOtherBoot Guard = "OtherBoot"
	// GuardUseWaiting: the agent says that what is in use belongs to no attachment that was gone when it checked.
	GuardUseWaiting Guard = "UseWaiting"
	// GuardNameFreed: an entry beside a use stays until the attachment's name is free, because it alone says that it may
	// be.
	GuardNameFreed Guard = "NameFreed"
)
