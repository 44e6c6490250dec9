/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Each guard asks several things at once. Here each of them is the only one that is different.

func TestEachConditionOfAttachingCounts(t *testing.T) {
	var p Protocol
	u2 := Attachment{Exists: true, UID: "u2", Attached: true}
	held := func(c Lock, exclusive bool) Guard { return p.MayWriteAttached(free, "node-a", exclusive, c, liveU1) }
	check(t, []verdict{
		{"Detaching of another attachment is that one's end", p.MayWriteAttached(detachN, "node-a", false, Lock{}, u2),
			GuardOneAttachment},
		{"a shared volume needs no lock", held(Lock{}, false), GuardNone},
		{"an exclusive one does", held(Lock{}, true), GuardLockHeld},
		{"a lock elsewhere counts although the volume is shared by now", held(Lock{Exists: true, Holder: "node-b"}, false),
			GuardLockHeld},
		{"a lock of nobody, too", held(Lock{Exists: true}, false), GuardLockHeld},
		{"a lock that was not found names nobody", held(Lock{Holder: "node-a"}, true), GuardLockHeld},
		{"not attached yet", p.MayWriteAttached(free, "node-a", false, Lock{}, Attachment{Exists: true, UID: "u1"}),
			GuardAttachmentLive},
		{"not there", p.MayWriteAttached(free, "node-a", false, Lock{}, Attachment{UID: "u1", Attached: true}),
			GuardAttachmentLive},
		{
			"an earlier attachment that is not in use any more",
			p.MayWriteAttached(with(free, func(n *Node) { n.Use = Use{UID: "u0"} }), "node-a", false, Lock{}, liveU1), GuardNone,
		},
		{
			"the same attachment in use",
			p.MayWriteAttached(with(attachedN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} }), "node-a", false, Lock{},
				liveU1), GuardNone,
		},
	})
}

func TestEachConditionOfDetachingCounts(t *testing.T) {
	var p Protocol
	silent := func(n Node) Node { n.Reported = false; return n }
	detached := func(n Node) Node { n.Entry.Detached = true; return n }
	held := liveU1
	held.NameHeld = true
	check(t, []verdict{
		{"a silent agent refuses the delete", p.MayDelete(silent(detachN), liveU1), GuardReported},
		{"not after a forced detach", p.MayDelete(silent(releasedN), held), GuardNone},
		{"nor what was declared released", p.MayDelete(declare(silent(detachN), "u1"), liveU1), GuardNone},
		{"what is in use again is not deleted",
			p.MayDelete(with(detachN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} }), liveU1), GuardNotInUse},
		{"after a forced detach the name need not be held where it may be free", p.MayDelete(releasedN, liveU1), GuardNone},
		{"a declaration of an entry that is not detached makes no place",
			p.MayMarkDetaching(declare(forcedN, "u1", "u2"), "u2", true), GuardOneAttachment},
		{"nor does an entry that is not detached", p.MayMarkDetaching(detachN, "u2", true), GuardOneAttachment},
		{"one that is makes place", p.MayMarkDetaching(detached(detachN), "u2", true), GuardNone},
		{"an attachment that is leaving, and that a driver still has, is not gone", p.MayMarkDetached(detachN, endingU1),
			GuardAttachmentGone},
		{
			"nor is one that is not leaving, whatever its finalizers",
			p.MayMarkDetached(detachN, Attachment{Exists: true, UID: "u1", Unpublished: true}), GuardAttachmentGone,
		},
		{"a fence waits for the use",
			p.MayFence(with(detachN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} }), Attachment{}), GuardNotInUse},
		{"not for a silent agent after a forced detach", p.MayFence(silent(forcedN), Attachment{}), GuardNone},
		{"an entry that was declared waits for the agent", p.MayForget(declare(silent(detachN), "u1"), Attachment{}),
			GuardForcedAwayReported},
		{"one that was not does not", p.MayForget(silent(detachN), Attachment{}), GuardNone},
	})
}

func TestEachConditionOfForgettingBesideAUseCounts(t *testing.T) {
	p := Protocol{Kubelet: true}
	waits := with(forcedN, func(n *Node) {
		n.Entry.Boot, n.Entry.Detached, n.Entry.Asked = "boot-1", true, true
		n.LookedAgain, n.Boot, n.Use = true, "boot-2", Use{InUse: true, Waiting: true}
	})
	check(t, []verdict{
		{"in use, and the name is taken", p.MayForget(waits, nameOnly), GuardNameFreed},
		{"not in use any more",
			p.MayForget(with(waits, func(n *Node) { n.Use, n.Looked = Use{}, true }), nameOnly), GuardNone},
		{"the attachment is not there", p.MayForget(waits, Attachment{UID: "u1"}), GuardNone},
		{"it is another one", p.MayForget(waits, Attachment{Exists: true, UID: "u2"}), GuardNone},
		{"not forced", p.MayForget(with(waits, func(n *Node) { n.Entry.Forced = false }), nameOnly), GuardNone},
	})
}

func TestEachConditionOfWhatTheKubeletNeedsCounts(t *testing.T) {
	p := Protocol{Kubelet: true}
	silent := func(n Node) Node { n.Reported = false; return n }
	unlisted := with(forcedN, func(n *Node) { n.Entry.Boot, n.Entry.Detached, n.Entry.Asked = "boot-1", true, true })
	waits := with(unlisted, func(n *Node) {
		n.LookedAgain, n.Boot, n.Use = true, "boot-2", Use{InUse: true, Waiting: true}
	})
	change := func(f func(*Node)) Guard { return p.MayFreeName(with(waits, f), nameOnly) }
	held := liveU1
	held.NameHeld = true
	replace := func(f func(*Node)) Guard {
		return p.MayMarkDetaching(with(waits, func(n *Node) { n.Use, n.Looked = Use{}, true; f(n) }), "u2", true)
	}
	check(t, []verdict{
		{"what the kubelet uses may be unlisted where it is not listed",
			p.MayUnlistAttached(detachN, KubeletLists{InUse: true}), GuardNone},
		{"or was forced away", p.MayUnlistAttached(forcedN, KubeletLists{Attached: true, InUse: true}), GuardNone},
		{"or there is no Node", p.MayUnlistAttached(forcedN, KubeletLists{Missing: true}), GuardNone},
		{"what is not Detaching asks nobody again", p.MayAskAgain(with(unlisted, func(n *Node) { n.Entry.State = Attached })),
			GuardDetachingStands},
		{"and no kubelet waits with it",
			p.MayCountAsWaiting(with(unlisted, func(n *Node) { n.Entry.State = Attached }), "boot-2"), GuardDetachingStands},
		{"nor with what the agent released",
			p.MayCountAsWaiting(with(unlisted, func(n *Node) { n.Entry.Forced = false }), "boot-2"), GuardDetachingStands},
		{"nor where the boot is not known",
			p.MayCountAsWaiting(with(unlisted, func(n *Node) { n.Entry.Boot = "" }), "boot-2"), GuardOtherBoot},
		{"what was forced away is deleted although it is in use", p.MayDeleteUnderKubelet(forcedN, held), GuardNone},

		{"after a reboot the name is free", change(func(*Node) {}), GuardNone},
		{"not of what is Attached", change(func(n *Node) { n.Entry.State = Attached }), GuardForcedAwayReported},
		{"nor of what the agent released", change(func(n *Node) { n.Entry.Forced = false }), GuardForcedAwayReported},
		{"nor before a report", change(func(n *Node) { n.Reported = false }), GuardForcedAwayReported},
		{"nor where the entry's boot is not known", change(func(n *Node) { n.Entry.Boot = "" }), GuardForcedAwayReported},
		{"the entry of a silent agent stays", p.MayForget(silent(with(waits, func(n *Node) { n.Use = Use{} })), Attachment{}),
			GuardForcedAwayReported},
		{"what was not forced needs no look",
			p.MayForget(declare(with(detachN, func(*Node) {}), "u1"), Attachment{}), GuardNone},

		{"what nobody uses makes place after the look", replace(func(*Node) {}), GuardNone},
		{"not before", replace(func(n *Node) { n.Looked, n.LookedAgain = false, false }), GuardOneAttachment},
		{"nor while anything is in use", replace(func(n *Node) { n.Use = Use{InUse: true, Waiting: true} }),
			GuardOneAttachment},
		{
			"but that hinders only what was forced away",
			replace(func(n *Node) { n.Entry.Forced, n.Use = false, Use{UID: "u2", InUse: true} }), GuardNone,
		},
	})
}

func TestEachConditionOfReleasingTheIntentOfANodeWithoutAnAgentCounts(t *testing.T) {
	var p Protocol
	blank := Node{Exists: true, Blank: true}
	check(t, []verdict{
		{"nothing was ever reported", p.MayReleaseUnheard(blank, false, false), GuardNone},
		{"an agent has a Lease", p.MayReleaseUnheard(blank, true, false), GuardNoLease},
		{"and has reported nothing of the volume", p.MayReleaseUnheard(Node{Exists: true}, true, false), GuardNone},
		{"the API was restored", p.MayReleaseUnheard(blank, false, true), GuardNotRestored},
		{"there is no state", p.MayReleaseUnheard(Node{Blank: true}, false, false), GuardHolderDetached},
		{"an entry is Attached", p.MayReleaseUnheard(with(blank, func(n *Node) { n.Entry.State = Attached }), false, false),
			GuardHolderDetached},
		{"or Detaching", p.MayReleaseUnheard(with(blank, func(n *Node) { n.Entry.State = Detaching }), false, false),
			GuardHolderDetached},
		{"it is in use", p.MayReleaseUnheard(Node{Exists: true, Use: Use{InUse: true}}, true, false), GuardNotInUse},
		{"also where that was declared to be over",
			p.MayReleaseUnheard(declare(Node{Exists: true, Use: Use{UID: "u1", InUse: true}}, "u1"), true, false),
			GuardNotInUse},
	})
}

func TestEachConditionOfTheAgentsActsCounts(t *testing.T) {
	var p Protocol
	check(t, []verdict{
		{"a use that was taken back is none", p.MayStage(with(attachedN, func(n *Node) { n.Use = Use{UID: "u1"} }), "u1"),
			GuardUseRecorded},
	})
}

func TestEachConditionOfASingleUserCounts(t *testing.T) {
	var p Protocol
	lock := Lock{Exists: true, Holder: "node-a", User: "i1"}
	there := Intent{Exists: true}
	check(t, []verdict{
		{"the lock names the user", p.MayPin(lock, "i1"), GuardNone},
		{"another", p.MayPin(lock, "i2"), GuardUserLocked},
		{"there is no lock", p.MayPin(Lock{User: "i1"}, "i1"), GuardUserLocked},
		{"who is named already needs nothing", p.MayTakeUser(lock, "i1", there, inUseN, false), GuardNone},
		{"another waits until that one is gone", p.MayTakeUser(lock, "i2", there, free, false), GuardUserGone},
		{"and until its use has ended", p.MayTakeUser(lock, "i2", Intent{}, inUseN, false), GuardUseEnded},
		{"unless that use is its own", p.MayTakeUser(lock, "i2", Intent{}, inUseN, true), GuardNone},
		{"or the volume was forced away", p.MayTakeUser(lock, "i2", Intent{}, forcedN, false), GuardNone},
		{"or is not in use", p.MayTakeUser(lock, "i2", Intent{}, attachedN, false), GuardNone},
	})
}

func TestWhichDeclarationsEndAUse(t *testing.T) {
	used := Use{UID: "u1", InUse: true}
	unnamed := Use{InUse: true}
	entry := Entry{State: Detaching, UID: "u2"}
	for _, c := range []struct {
		name     string
		n        Node
		declared []string
		want     bool
	}{
		{"not in use", Node{Use: Use{UID: "u1"}}, nil, false},
		{"no entry, nothing declared", Node{Use: used}, nil, true},
		{"no entry, the use declared", Node{Use: used}, []string{"u1"}, false},
		{"no entry, another declared", Node{Use: used}, []string{"u2"}, true},
		{"a use without a name, the entry declared", Node{Use: unnamed, Entry: entry}, []string{"u2"}, false},
		{"a use without a name, another declared", Node{Use: unnamed, Entry: entry}, []string{"u1"}, true},
		{"a use without a name and an entry, nothing declared", Node{Use: unnamed, Entry: entry}, nil, true},
		{"the use declared, not the entry", Node{Use: used, Entry: entry}, []string{"u1"}, true},
		{"the entry declared, not the use", Node{Use: used, Entry: entry}, []string{"u2"}, true},
		{"both declared", Node{Use: used, Entry: entry}, []string{"u1", "u2"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, uid := range c.declared {
				c.n.Declared = append(c.n.Declared, Declaration{UID: types.UID(uid)})
			}
			if got := c.n.InUse(); got != c.want {
				t.Errorf("node with use %+v and entry %+v is in use: %t, want %t", c.n.Use, c.n.Entry, got, c.want)
			}
		})
	}
}

func TestOfTwoLinesOfAVolumeTheOneInUseCounts(t *testing.T) {
	line := func(name, uid string, inUse bool) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{VolumeName: name, AttachmentUID: types.UID(uid), InUse: inUse}
	}
	for name, c := range map[string]struct {
		lines []volumesv1alpha1.NodeVolume
		want  string
	}{
		"none of it": {[]volumesv1alpha1.NodeVolume{line("another", "1", true)}, ""},
		"one": {[]volumesv1alpha1.NodeVolume{line("another", "1", true), line(volume, "2", false)},
			"2"},
		"one, and another volume after": {[]volumesv1alpha1.NodeVolume{line(volume, "2", false), line("another", "3", true)},
			"2"},
		"the second in use": {[]volumesv1alpha1.NodeVolume{line(volume, "1", false), line(volume, "2", true)}, "2"},
		"the first in use":  {[]volumesv1alpha1.NodeVolume{line(volume, "1", true), line(volume, "2", false)}, "1"},
		"both in use":       {[]volumesv1alpha1.NodeVolume{line(volume, "1", true), line(volume, "2", true)}, "1"},
		"neither in use":    {[]volumesv1alpha1.NodeVolume{line(volume, "1", false), line(volume, "2", false)}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			nvs := volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Volumes = c.lines })
			got := VolumeOf(nvs, volume)
			if got == nil && c.want != "" || got != nil && string(got.AttachmentUID) != c.want {
				t.Errorf("line of volume %s: %+v, want that of attachment %q", volume, got, c.want)
			}
		})
	}
}

func TestWhatANodesViewRestsOn(t *testing.T) {
	looked := volumesv1alpha1.NodeAttachment{
		AttachmentUID: "u1", Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedGeneration: 3, RebootGeneration: 3},
	}
	for name, c := range map[string]struct {
		change func(*volumesv1alpha1.NodeVolumeState)
		want   func(Node) bool
	}{
		"a session that is confirmed": {
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Protocol.Session, nvs.Spec.Protocol.ConfirmedSession = 4, 4
			},
			func(n Node) bool { return !n.Unconfirmed },
		},
		"one that is not": {
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Protocol.Session, nvs.Spec.Protocol.ConfirmedSession = 4, 3
			},
			func(n Node) bool { return n.Unconfirmed },
		},
		"a look": {
			func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.ObservedGeneration = 3; entryOf(looked)(nvs) },
			func(n Node) bool { return n.Looked && n.LookedAgain },
		},
		"a look that was reported to another object": {
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.UID, nvs.Status.ObservedGeneration = "object-2", 3
				entryOf(looked)(nvs)
			},
			func(n Node) bool { return !n.Looked && !n.LookedAgain },
		},
		"declarations, in the same order each time": {
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Annotations = map[string]string{}
				for _, uid := range []string{"5", "1", "4", "2", "6", "3"} {
					nvs.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+uid] = "scrapped"
				}
			},
			func(n Node) bool {
				return len(n.Declared) == 6 && slices.IsSortedFunc(n.Declared, func(a, b Declaration) int {
					return strings.Compare(string(a.UID), string(b.UID))
				})
			},
		},
		"an object without a UID to which nothing was reported": {
			func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.UID, nvs.Status.Protocol.ObservedUID = "", "" },
			func(n Node) bool { return !n.Reported },
		},
		"the first entry": {
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(looked)(nvs)
				nvs.Spec.Attachments = nvs.Spec.Attachments[1:]
			},
			func(n Node) bool { return n.Entry.UID == "u1" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if n := NodeOf(volumeState(c.change), volume); !c.want(n) {
				t.Errorf("node's view of volume %s: %+v, want one that has %s", volume, n, name)
			}
		})
	}
}
