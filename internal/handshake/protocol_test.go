/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

var (
	free      = Node{Exists: true, Reported: true}
	heldByA   = Lock{Exists: true, Holder: "node-a"}
	liveU1    = Attachment{Exists: true, UID: "u1", Attached: true}
	endingU1  = Attachment{Exists: true, UID: "u1", Attached: true, Terminating: true}
	nameOnly  = Attachment{Exists: true, UID: "u1", Terminating: true, NameHeld: true, Unpublished: true}
	attachedN = with(free, func(n *Node) { n.Entry = Entry{State: Attached, UID: "u1"} })
	inUseN    = with(attachedN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} })
	detachN   = with(free, func(n *Node) { n.Entry = Entry{State: Detaching, UID: "u1"} })
	forcedN   = with(inUseN, func(n *Node) { n.Entry = Entry{State: Detaching, UID: "u1", Forced: true} })
	releasedN = with(forcedN, func(n *Node) { n.Use = Use{} })
)

func with(n Node, change func(*Node)) Node {
	change(&n)
	return n
}

type verdict struct {
	name string
	got  Guard
	want Guard
}

func check(t *testing.T, verdicts []verdict) {
	t.Helper()
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) {
			if v.got != v.want {
				t.Errorf("verdict %q: got %q, want %q", v.name, v.got, v.want)
			}
		})
	}
}

func TestAttaching(t *testing.T) {
	var p Protocol
	moving := Lock{Exists: true, Holder: "node-a", MovedFrom: "node-b"}
	unreported := Node{Exists: true}
	check(t, []verdict{
		{"a live attachment may be written", p.MayWriteAttached(free, "node-a", true, heldByA, liveU1), GuardNone},
		{"and written again", p.MayWriteAttached(attachedN, "node-a", false, Lock{}, liveU1), GuardNone},
		{"not before the agent has reported", p.MayWriteAttached(unreported, "node-a", false, Lock{}, liveU1), GuardReported},
		{"a terminating one may not", p.MayWriteAttached(free, "node-a", false, Lock{}, endingU1), GuardAttachmentLive},
		{"nor one that is gone", p.MayWriteAttached(free, "node-a", false, Lock{}, Attachment{}), GuardAttachmentLive},
		{"Detaching is final", p.MayWriteAttached(detachN, "node-a", false, Lock{}, liveU1), GuardDetachingIsFinal},
		{
			"an entry of another attachment has to go first",
			p.MayWriteAttached(attachedN, "node-a", false, Lock{}, Attachment{Exists: true, UID: "u2", Attached: true}),
			GuardOneAttachment,
		},
		{"the lock elsewhere refuses", p.MayWriteAttached(free, "node-b", true, heldByA, liveU1), GuardLockHeld},
		{"a move that is not fenced refuses", p.MayWriteAttached(free, "node-a", true, moving, liveU1), GuardMoveFenced},
	})
}

func TestDetaching(t *testing.T) {
	var p Protocol
	held := liveU1
	held.NameHeld = true
	gone, another := Attachment{}, Attachment{Exists: true, UID: "u2"}
	check(t, []verdict{
		{"what is not in use may be detached", p.MayMarkDetaching(attachedN, "u1", false), GuardNone},
		{"also where no entry stood", p.MayMarkDetaching(free, "u1", false), GuardNone},
		{"what is in use may not", p.MayMarkDetaching(inUseN, "u1", false), GuardNotInUse},
		{"but on evidence", p.MayMarkDetaching(inUseN, "u1", true), GuardNone},
		{
			"evidence counts for one attachment only",
			p.MayMarkDetaching(with(inUseN, func(n *Node) { n.Entry = Entry{} }), "u2", true), GuardNotInUse,
		},
		{"an entry of another attachment is not overwritten", p.MayMarkDetaching(attachedN, "u2", true), GuardOneAttachment},
		{
			"unless that one is marked detached",
			p.MayMarkDetaching(with(forcedN, func(n *Node) { n.Entry.Detached = true }), "u2", true), GuardNone,
		},
		{"who never reported counts as in use", p.MayMarkDetaching(Node{Exists: true}, "u1", false), GuardReported},

		{"a delete needs Detaching", p.MayDelete(attachedN, liveU1), GuardDetachingStands},
		{"for the attachment's UID", p.MayDelete(detachN, another), GuardDetachingStands},
		{"then it may be sent", p.MayDelete(detachN, liveU1), GuardNone},
		{"what is forced away keeps its name", p.MayDelete(forcedN, liveU1), GuardNameHeld},
		{"and may then be deleted", p.MayDelete(forcedN, held), GuardNone},
		{"the name is not free while the old mount may be there", p.MayFreeName(forcedN, nameOnly), GuardForcedAwayReported},
		{"nor while the agent has not reported", p.MayFreeName(Node{Exists: true}, nameOnly), GuardForcedAwayReported},
		{"but once the agent has nothing in use", p.MayFreeName(releasedN, nameOnly), GuardNone},

		{"an entry stays while the attachment is there", p.MayForget(detachN, endingU1), GuardAttachmentGone},
		{"and goes when it is gone", p.MayForget(detachN, gone), GuardNone},
		{"or is another", p.MayForget(detachN, another), GuardNone},
		{"an Attached entry is not forgotten", p.MayForget(attachedN, gone), GuardDetachingStands},
		{"a forced one waits for the agent", p.MayForget(forcedN, nameOnly), GuardForcedAwayReported},
		{"and is marked detached meanwhile", p.MayMarkDetached(forcedN, nameOnly), GuardNone},
	})
}

func TestMovingTheLock(t *testing.T) {
	var p Protocol
	check(t, []verdict{
		{"a lock may leave a node that is done", p.MayMoveLock(heldByA, detachN, Attachment{}), GuardNone},
		{"but not one that is attached", p.MayMoveLock(heldByA, attachedN, liveU1), GuardHolderDetached},
		{"nor one whose attachment is still there", p.MayMoveLock(heldByA, detachN, endingU1), GuardAttachmentGone},
		{
			"nor before the last move was fenced",
			p.MayMoveLock(Lock{Exists: true, Holder: "node-a", MovedFrom: "node-b"}, free, Attachment{}), GuardMoveFenced,
		},
		{"a node that is done may be fenced", p.MayFence(free, Attachment{}), GuardNone},
		{"and one without a state", p.MayFence(Node{}, Attachment{}), GuardNone},
		{"but not one that is attached again", p.MayFence(attachedN, Attachment{}), GuardHolderDetached},
		{"nor one whose agent has not reported", p.MayFence(Node{Exists: true}, Attachment{}), GuardReported},
		{"nor one that uses the volume", p.MayFence(with(inUseN, func(n *Node) { n.Entry = Entry{} }), Attachment{}),
			GuardNotInUse},
		{"unless it was forced away and the driver is done", p.MayFence(forcedN, nameOnly), GuardNone},
		{"and not before", p.MayFence(forcedN, endingU1), GuardAttachmentGone},
	})
}

func TestTheAgentsActs(t *testing.T) {
	var p Protocol
	check(t, []verdict{
		{"inUse needs an Attached entry", p.MaySetInUse(detachN, "u1"), GuardEntryAttached},
		{"of that UID", p.MaySetInUse(attachedN, "u2"), GuardEntryAttached},
		{"and may then be set", p.MaySetInUse(attachedN, "u1"), GuardNone},
		{"staging needs inUse", p.MayStage(attachedN, "u1"), GuardUseRecorded},
		{"of that UID, too", p.MayStage(inUseN, "u2"), GuardUseRecorded},
		{"and may then begin", p.MayStage(inUseN, "u1"), GuardNone},
		{"but not on another machine's use", p.MayStage(with(inUseN, func(n *Node) { n.Use.Foreign = true }), "u1"),
			GuardUseRecorded},
		{"publishing needs a live intent", p.MayPublish(inUseN, "u1", Intent{Exists: true, Deleting: true}), GuardIntentLive},
		{"one that is there", p.MayPublish(inUseN, "u1", Intent{}), GuardIntentLive},
		{"and may then begin, too", p.MayPublish(inUseN, "u1", Intent{Exists: true}), GuardNone},
		{"inUse stays until the release is known", p.MayClearInUse(Held{CallsEnded: true}), GuardReleased},
		{"and every call has ended", p.MayClearInUse(Held{Released: true}), GuardCallsEnded},
		{"and the mount table agrees", p.MayClearInUse(Held{Released: true, CallsEnded: true, Mounted: true}),
			GuardMountTable},
		{"then it may be cleared", p.MayClearInUse(Held{Released: true, CallsEnded: true}), GuardNone},
	})
}

func TestReleasingAnIntent(t *testing.T) {
	var p Protocol
	check(t, []verdict{
		{"the agent's answer is enough", p.MayReleaseIntent(inUseN, true, false), GuardNone},
		{"evidence is enough", p.MayReleaseIntent(inUseN, false, true), GuardNone},
		{"a node that does not use the volume, nor may, is enough", p.MayReleaseIntent(detachN, false, false), GuardNone},
		{"one that may use it is not", p.MayReleaseIntent(attachedN, false, false), GuardHolderDetached},
		{"nor one that never reported", p.MayReleaseIntent(Node{Exists: true}, false, false), GuardReported},
		{"nor one without a state", p.MayReleaseIntent(Node{}, false, false), GuardReported},
	})
}

func TestUnderTheKubelet(t *testing.T) {
	var p Protocol
	looked := with(detachN, func(n *Node) { n.Looked = true })
	check(t, []verdict{
		{"only what is Attached is listed", p.MayListAttached(detachN), GuardEntryAttached},
		{"and that may be", p.MayListAttached(attachedN), GuardNone},
		{"nothing is unlisted before Detaching stands", p.MayUnlistAttached(attachedN, KubeletLists{}), GuardDetachingStands},
		{"nor while the kubelet uses it", p.MayUnlistAttached(detachN, KubeletLists{Attached: true, InUse: true}),
			GuardKubeletReleased},
		{"then it is", p.MayUnlistAttached(detachN, KubeletLists{Attached: true}), GuardNone},
		{"but not while nobody knows, because there is no Node", p.MayUnlistAttached(detachN, KubeletLists{Missing: true}),
			GuardKubeletReleased},
		{"a delete waits for the agent's look", p.MayDeleteUnderKubelet(detachN, liveU1), GuardAgentLooked},
		{"and may then be sent", p.MayDeleteUnderKubelet(looked, liveU1), GuardNone},
		{
			"unless the agent saw it in use",
			p.MayDeleteUnderKubelet(with(looked, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} }), liveU1), GuardNotInUse,
		},
	})
}

func declare(n Node, uids ...types.UID) Node {
	for _, uid := range uids {
		n.Declared = append(n.Declared, Declaration{UID: uid, Reason: "scrapped"})
	}
	return n
}

func TestWhatAnAdministratorDeclares(t *testing.T) {
	var p Protocol
	silent := Node{Exists: true}
	liveU2 := Attachment{Exists: true, UID: "u2", Attached: true}
	silentN := with(silent, func(n *Node) { n.Entry = Entry{State: Detaching, UID: "u1", Forced: true} })
	stale := with(free, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} })
	unnamed := with(forcedN, func(n *Node) { n.Use.UID = "" })
	usedU2 := with(attachedN, func(n *Node) { n.Entry.UID, n.Use = "u2", Use{UID: "u1", InUse: true} })
	detached := func(n Node) Node { n.Entry.Detached = true; return n }
	check(t, []verdict{
		{"what was declared released is not taken into use any more",
			p.MayWriteAttached(declare(free, "u1"), "node-a", false, Lock{}, liveU1), GuardNotDeclared},
		{"nor is another, before the agent has reported",
			p.MayWriteAttached(declare(stale, "u1"), "node-a", false, Lock{}, liveU2), GuardEarlierEnded},
		{"after that it is", p.MayWriteAttached(declare(free, "u1"), "node-a", false, Lock{}, liveU2), GuardNone},
		{"what the kubelet uses of nobody's attachment goes over to the next",
			p.MayWriteAttached(with(stale, func(n *Node) { n.Use.UID = "" }), "node-a", false, Lock{}, liveU2), GuardNone},
		{"it is evidence for its attachment", p.MayMarkDetaching(declare(silent, "u1"), "u1", true), GuardNone},
		{"a stale use blocks the detach of another no more",
			p.MayMarkDetaching(declare(stale, "u1"), "u2", false), GuardNone},
		{"but does while that other one may be what is used", p.MayMarkDetaching(declare(usedU2, "u1"), "u2", false),
			GuardNotInUse},
		{"until it was declared too", p.MayMarkDetaching(declare(usedU2, "u1", "u2"), "u2", false), GuardNone},
		{"and a declaration of another says nothing", p.MayMarkDetaching(declare(inUseN, "u9"), "u1", false), GuardNotInUse},
		{"evidence covers a use that names no attachment",
			p.MayMarkDetaching(with(inUseN, func(n *Node) { n.Use.UID = "" }), "u1", true), GuardNone},

		{"the name is free", p.MayFreeName(declare(forcedN, "u1"), nameOnly), GuardNone},
		{"also where the agent never reported", p.MayFreeName(declare(silent, "u1"), nameOnly), GuardNone},
		{"not on the word on another", p.MayFreeName(declare(silent, "u2"), nameOnly), GuardForcedAwayReported},
		{"the entry stays until the agent reports", p.MayForget(declare(forcedN, "u1"), Attachment{}),
			GuardForcedAwayReported},
		{"also where it never has", p.MayForget(declare(silentN, "u1"), Attachment{}), GuardForcedAwayReported},
		{"and where a use names no attachment", p.MayForget(declare(unnamed, "u1"), Attachment{}), GuardForcedAwayReported},
		{"and goes then", p.MayForget(declare(releasedN, "u1"), Attachment{}), GuardNone},
		{"it makes no place for another then", p.MayMarkDetaching(declare(detached(silentN), "u1"), "u2", true),
			GuardOneAttachment},
		{"but for one that was declared too",
			p.MayMarkDetaching(declare(detached(silentN), "u1", "u2"), "u2", true), GuardNone},
		{"the lock may leave", p.MayFence(declare(stale, "u1"), Attachment{}), GuardNone},
		{"not while the attachment is there", p.MayFence(declare(stale, "u1"), liveU1), GuardAttachmentGone},
		{"intents are let go", p.MayReleaseIntent(declare(stale, "u1"), false, false), GuardNone},

		{"the agent may go on staging", p.MayStage(declare(inUseN, "u1"), "u1"), GuardNone},
		{"and using", p.MaySetInUse(declare(attachedN, "u1"), "u1"), GuardNone},
	})
}

func TestAForcedDetachFromAKubelet(t *testing.T) {
	p := Protocol{Kubelet: true}
	looked := with(releasedN, func(n *Node) { n.Looked = true })
	held := liveU1
	held.NameHeld = true
	check(t, []verdict{
		{"no report is new enough but one after a look", p.MayFreeName(releasedN, nameOnly), GuardForcedAwayReported},
		{"which frees the name", p.MayFreeName(looked, nameOnly), GuardNone},
		{"and the entry", p.MayForget(looked, Attachment{}), GuardNone},
		{"not before", p.MayForget(releasedN, Attachment{}), GuardForcedAwayReported},
		{"meanwhile the name is held", p.MayDeleteUnderKubelet(releasedN, liveU1), GuardNameHeld},
		{"then it may be deleted", p.MayDeleteUnderKubelet(releasedN, held), GuardNone},
		{"nobody is asked to look while the kubelet uses it", p.MayNoteUnlisted(KubeletLists{InUse: true}),
			GuardKubeletReleased},
		{"nor while there is no Node", p.MayNoteUnlisted(KubeletLists{Missing: true}), GuardKubeletReleased},
		{"but after that", p.MayNoteUnlisted(KubeletLists{}), GuardNone},
		{"a declaration waits for no look", p.MayFreeName(declare(releasedN, "u1"), nameOnly), GuardNone},
		{"an entry that waits for one makes no place",
			p.MayMarkDetaching(with(releasedN, func(n *Node) { n.Entry.Detached = true }), "u2", true), GuardOneAttachment},
	})
}

func TestANodeThatRebootedAfterAForcedDetachFromItsKubelet(t *testing.T) {
	p := Protocol{Kubelet: true}
	unlisted := with(forcedN, func(n *Node) { n.Entry.Boot = "boot-1" })
	detached := with(unlisted, func(n *Node) { n.Entry.Detached = true })
	asked := with(detached, func(n *Node) { n.Entry.Asked = true })
	waiting := with(asked, func(n *Node) {
		n.LookedAgain, n.Boot, n.Use = true, "boot-2", Use{InUse: true, Waiting: true}
	})
	u2 := Attachment{Exists: true, UID: "u2"}
	check(t, []verdict{
		{"the agent is asked once more when the attachment is gone", p.MayAskAgain(detached), GuardNone},
		{"not before", p.MayAskAgain(unlisted), GuardAttachmentGone},
		{"nor where the boot is not known", p.MayAskAgain(with(detached, func(n *Node) { n.Entry.Boot = "" })),
			GuardDetachingStands},
		{"nor after the agent's release", p.MayAskAgain(with(detached, func(n *Node) { n.Entry.Forced = false })),
			GuardDetachingStands},
		{"then records of an earlier boot are a kubelet that waits", p.MayCountAsWaiting(asked, "boot-2"), GuardNone},
		{"not in the boot in which it was unlisted", p.MayCountAsWaiting(asked, "boot-1"), GuardOtherBoot},
		{"nor before the agent is asked", p.MayCountAsWaiting(detached, "boot-2"), GuardAttachmentGone},
		{"nor of an attachment that was not taken away", p.MayCountAsWaiting(attachedN, "boot-2"), GuardDetachingStands},
		{"once the entry is gone it waits on", p.MayCountAsWaiting(with(waiting, func(n *Node) { n.Entry = Entry{} }),
			"boot-2"), GuardNone},
		{"unless it did not wait before", p.MayCountAsWaiting(with(waiting, func(n *Node) {
			n.Entry, n.Use.Waiting = Entry{}, false
		}), "boot-2"), GuardDetachingStands},
		{"or another machine did", p.MayCountAsWaiting(with(waiting, func(n *Node) {
			n.Entry, n.Use.Foreign = Entry{}, true
		}), "boot-2"), GuardDetachingStands},

		{"a kubelet that waits does not keep the name", p.MayFreeName(waiting, nameOnly), GuardNone},
		{"but that of no other attachment", p.MayFreeName(waiting, Attachment{Exists: true, UID: "u0", NameHeld: true}),
			GuardForcedAwayReported},
		{"a kubelet that may use it does", p.MayFreeName(with(waiting, func(n *Node) { n.Use.Waiting = false }), nameOnly),
			GuardForcedAwayReported},
		{"also where the use names no attachment before the look",
			p.MayFreeName(with(waiting, func(n *Node) { n.LookedAgain = false }), nameOnly), GuardForcedAwayReported},
		{"or in the same boot", p.MayFreeName(with(waiting, func(n *Node) { n.Boot = "boot-1" }), nameOnly),
			GuardForcedAwayReported},
		{"or where the agent's boot is not known", p.MayFreeName(with(waiting, func(n *Node) { n.Boot = "" }), nameOnly),
			GuardForcedAwayReported},
		{"and so does another machine, whatever its kubelet does",
			p.MayFreeName(with(waiting, func(n *Node) { n.Use.Foreign = true }), nameOnly), GuardForcedAwayReported},
		{"one that merely lists the volume does not",
			p.MayFreeName(with(waiting, func(n *Node) { n.Use = Use{} }), nameOnly), GuardNone},

		{"the entry stays until the name is free", p.MayForget(waiting, nameOnly), GuardNameFreed},
		{"and goes then", p.MayForget(waiting, Attachment{}), GuardNone},
		{"or when another has the name", p.MayForget(waiting, u2), GuardNone},
		{"it makes no place for another meanwhile", p.MayMarkDetaching(waiting, "u2", true), GuardOneAttachment},
		{"what waits counts as in use", p.MayMarkDetaching(with(waiting, func(n *Node) { n.Entry = Entry{} }), "u2", false),
			GuardNotInUse},
	})
}

func TestWhatAnotherMachineUsesStaysUntilAnAdministratorEndsIt(t *testing.T) {
	var p Protocol
	declared := func(uid types.UID) func(*Node) {
		return func(n *Node) { n.Declared = []Declaration{{UID: uid, Reason: "off"}} }
	}
	foreign := with(attachedN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true, Foreign: true} })
	detaching := with(foreign, func(n *Node) { n.Entry = Entry{State: Detaching, UID: "u1"} })
	detached := with(detaching, func(n *Node) { n.Entry.Detached = true })
	unnamed := with(detached, func(n *Node) { n.Use.UID = "" })
	gone := with(foreign, func(n *Node) { n.Entry = Entry{} })
	check(t, []verdict{
		{"a declaration alone does not end what is attached", p.MayDropForeign(with(foreign, declared("u1"))),
			GuardSameMachine},
		{"nor what is being detached", p.MayDropForeign(with(detaching, declared("u1"))), GuardSameMachine},
		{"the detach alone does not end it", p.MayDropForeign(detached), GuardSameMachine},
		{"nor do both, if the entry is attached again",
			p.MayDropForeign(with(with(detached, declared("u1")), func(n *Node) { n.Entry.State = Attached })),
			GuardSameMachine},
		{"both do", p.MayDropForeign(with(detached, declared("u1"))), GuardNone},
		{"so does an entry that was declared", p.MayDropForeign(with(detached, func(n *Node) { n.Entry.Declared = true })),
			GuardNone},
		{"without an entry a declaration does", p.MayDropForeign(with(gone, declared("u1"))), GuardNone},
		{"one of another attachment does not", p.MayDropForeign(with(gone, declared("u2"))), GuardSameMachine},
		{"without an entry nothing else does", p.MayDropForeign(gone), GuardSameMachine},
		{"a use without a UID belongs to the entry", p.MayDropForeign(with(unnamed, declared("u1"))), GuardNone},
		{"and to no other", p.MayDropForeign(with(unnamed, declared("u2"))), GuardSameMachine},
		{"another attachment's entry ends nothing",
			p.MayDropForeign(with(detached, func(n *Node) { n.Use.UID, n.Entry.Declared = "u0", true })), GuardSameMachine},
	})
}

func TestCollectingTheLock(t *testing.T) {
	var p Protocol
	nobody, from := Lock{Exists: true}, Lock{Exists: true, MovedFrom: "node-a"}
	check(t, []verdict{
		{"a lock may be given up like it may be moved", p.MayMoveLock(heldByA, detachN, Attachment{}), GuardNone},
		{"and by nobody be left at once", p.MayMoveLock(nobody, Node{}, Attachment{}), GuardNone},
		{"a lock that is held stays", p.MayCollectLock(heldByA, false), GuardLockGivenUp},
		{"also right after its last holder was fenced",
			p.MayCollectLock(Lock{Exists: true, Holder: "node-b", MovedFrom: "node-a"}, true), GuardLockGivenUp},
		{"one that is given up waits for the fence", p.MayCollectLock(from, false), GuardMoveFenced},
		{"and goes with it", p.MayCollectLock(from, true), GuardNone},
		{"or after it", p.MayCollectLock(nobody, false), GuardNone},
		{"nothing is attached while nobody holds it", p.MayWriteAttached(free, "node-a", true, nobody, liveU1),
			GuardLockHeld},
	})
}
