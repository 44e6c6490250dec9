/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"math/bits"
	"strings"
)

type actKind uint8

const (
	_ actKind = iota
	// attacher and world
	actPublish
	actStatusAttached
	actUnpublish
	actReboot
	actStrangerDeletes
	actStateLost
	actStateCreated
	actStateRemoved
	actDeclare
	actDies
	actReplaced
	actTurn
	actPowerOff
	actPowerOn
	actNeighbour
	actNeighbourLocks
	actCatchUp
	// leaders
	actGiveUp
	actWriteVouched
	actCreate
	actReadState
	actReadLock
	actReadVA
	actWriteAttached
	actDecideDetaching
	actWriteDetaching
	actWriteForced
	actHoldName
	actDecideDelete
	actDelete
	actForget
	actMarkDetached
	actFreeName
	actCreateLock
	actDecideMove
	actMoveLock
	actGiveUpLock
	actTakeLock
	actDecideCollect
	actCollectLock
	actReadMovedLock
	actDecideFence
	actFence
	actClearMovedFrom
	actDecideRelease
	actReleaseIntent
	actReadNode
	actReadStateForList
	actList
	actUnlist
	// host and agent
	actCallMounts
	actCallStages
	actCallFails
	actDeadline
	actLateWrite
	actUnmountByHand
	actStart
	actCrash
	actAbandon
	actReport
	actSetInUse
	actRecord
	actCall
	actUnstage
	actUnstageLies
	actClear
	actDropForeign
	// intents
	actIntentCreated
	actIntentDeleted
	actIntentLost
	actIntentSeen
	actReadIntent
	actGiveUpPublish
	actPublishIntent
	actUnpublishIntent
	actAcknowledge
	// kubelet
	actKubeletInUse
	actKubeletForgets
	actKubeletVerifies
	actKubeletCalls
	actKubeletUnmounts
	actKubeletRestarts
	actNodeDeleted
	actNodeRegistered
	actKubeletNames
	actPodDeleted
	actLook
	actReportLook
	actAskAgain
	actShutDown
	// a node without an agent
	actLease
	actReadUnheard
	actReadLease
	actWriteUnheard
	actReportRestore
	// restore
	actBackup
	actRestore
	actHear
	actConfirm
	actExcuse
	actBeginSession
	// what is asserted of a node
	actTaint
	actUntaint
	actRecordTaint
	actForgetTaint
	actRenew
	actCutOff
	actMarkSilent
	actReadTaint
	actWriteTainted
	actWriteLapsed
	// access that is cut
	actCut
	actLift
	actReadCut
	actWriteCut
	actShowLifted
)

// words of each act: L is the leader, N the node, S its NodeVolumeState as it is, V its VolumeAttachment, C the lock,
// R what an agent still remembers.
var words = map[actKind]string{
	actPublish:          "attacher publishes {V}",
	actStatusAttached:   "attacher reports {V} attached",
	actUnpublish:        "attacher unpublishes {V}",
	actReboot:           "{N} reboots, its mounts are gone",
	actStrangerDeletes:  "someone else deletes {V}",
	actStateLost:        "someone removes NodeVolumeState {N} with its finalizer",
	actStateCreated:     "NodeVolumeState {N} is created anew",
	actStateRemoved:     "Node {N} is deleted, and its NodeVolumeState goes with it",
	actDeclare:          "the administrator declares {U} of {N} released",
	actDies:             "{N} dies and never comes back",
	actReplaced:         "there is a new machine {N}",
	actTurn:             "the other machine of the name {N} acts",
	actPowerOff:         "the other machine of the name {N} is powered off",
	actPowerOn:          "there is another machine of the name {N}",
	actNeighbour:        "the manager of another volume writes {S}",
	actNeighbourLocks:   "the manager of another volume writes its lock beside {C}",
	actCatchUp:          "the cache of the manager that attaches has caught up",
	actGiveUp:           "{L} begins again",
	actWriteVouched:     "{L} knows from an administrator that the other machine is off, and writes {S}",
	actCreate:           "{L} creates {V}",
	actReadState:        "{L} reads {S}",
	actReadLock:         "{L} reads {C}",
	actReadVA:           "{L} reads {V}",
	actWriteAttached:    "{L} writes {S}",
	actDecideDetaching:  "{L} reads {S} and is about to write Detaching",
	actWriteDetaching:   "{L} writes {S}",
	actWriteForced:      "{L} has evidence and writes {S}",
	actHoldName:         "{L} puts our finalizer on {V}",
	actDecideDelete:     "{L} reads {S} and {V} and is about to DELETE",
	actDelete:           "{L} sends DELETE: {V}",
	actForget:           "{L} removes the entry: {S}",
	actMarkDetached:     "{L} marks the entry detached: {S}",
	actFreeName:         "{L} takes our finalizer off: {V}",
	actCreateLock:       "{L} creates {C}",
	actDecideMove:       "{L} reads {C}, {S} and {V} and is about to move the lock",
	actMoveLock:         "{L} writes {C}",
	actGiveUpLock:       "{L} writes {C}",
	actTakeLock:         "{L} takes {C}",
	actDecideCollect:    "{L} reads {C} and is about to delete it",
	actCollectLock:      "{L} deletes the lock: {C}",
	actReadMovedLock:    "{L} reads {C}",
	actDecideFence:      "{L} reads {S} and {V} and is about to fence {N}",
	actFence:            "{L} fences {N}: {S}",
	actClearMovedFrom:   "{L} clears MovedFrom: {C}",
	actDecideRelease:    "{L} reads intent and {S} and is about to take the intent's finalizer off",
	actReleaseIntent:    "{L} takes the intent's finalizer off, the intent is gone",
	actReadNode:         "{L} reads Node {N} ({K})",
	actReadStateForList: "{L} reads {S} and is about to list the volume as attached",
	actList:             "{L} writes Node {N} ({K})",
	actUnlist:           "{L} reads {S} and writes Node {N} ({K})",
	actCallMounts:       "driver on {N} ends the stage call with a mount of {H}",
	actCallStages:       "driver on {N} ends the stage call half way: {H} staged, not mounted",
	actCallFails:        "driver on {N} ends the stage call, nothing staged",
	actDeadline:         "agent {N} lets the deadline of a call pass",
	actLateWrite:        "API server gets agent {N}'s late write: {S}",
	actUnmountByHand:    "someone unmounts the volume on {N} by hand",
	actStart:            "agent {N} starts",
	actCrash:            "agent {N} dies",
	actAbandon:          "agent {N} gives up waiting for its stage call",
	actReport:           "agent {N} reports: {S}",
	actSetInUse:         "agent {N} writes inUse: {S}",
	actRecord:           "agent {N} writes its record",
	actCall:             "agent {N} calls the driver to stage",
	actUnstage:          "agent {N} unstages",
	actUnstageLies:      "agent {N} unstages, the driver says done and leaves the mount",
	actClear:            "agent {N} clears inUse: {S}",
	actDropForeign:      "agent {N} drops what the other machine uses: {S}",
	actIntentCreated:    "someone creates the intent",
	actIntentDeleted:    "someone deletes the intent",
	actIntentLost:       "someone cuts the intent's finalizer off, the intent is gone",
	actIntentSeen:       "agent {N} sees the intent as it is now in its cache",
	actReadIntent:       "agent {N} reads the intent and is about to publish",
	actGiveUpPublish:    "agent {N} gives the publication up",
	actPublishIntent:    "agent {N} publishes for the intent",
	actUnpublishIntent:  "agent {N} unpublishes",
	actAcknowledge:      "agent {N} acknowledges that the intent is not published",
	actKubeletInUse:     "kubelet {N} writes volumesInUse ({K})",
	actKubeletForgets:   "kubelet {N} takes the volume out of volumesInUse ({K})",
	actKubeletVerifies:  "kubelet {N} reads that the volume is attached ({K})",
	actKubeletCalls:     "kubelet {N} calls the driver to stage",
	actKubeletUnmounts:  "kubelet {N} unstages",
	actNodeDeleted:      "the Node of {N} is deleted",
	actNodeRegistered:   "kubelet {N} restarts and registers its Node again",
	actKubeletRestarts:  "kubelet {N} restarts and forgets the volume ({K})",
	actLook:             "agent {N} reads {S} and looks at its mount table",
	actReportLook:       "agent {N} reports what it saw: {S}",
	actPodDeleted:       "someone deletes the pod that waits on {N}",
	actKubeletNames:     "kubelet {N} names its boot in the Node",
	actShutDown:         "agent {N} shuts down what the kubelet has mounted on {X}",
	actBackup:           "someone takes a backup of the API",
	actRestore:          "someone restores the API from the backup",
	actHear:             "the manager hears agent {N}",
	actConfirm:          "the manager confirms the session of agent {N}: {S}",
	actExcuse:           "an administrator excuses {N} from the restore",
	actBeginSession:     "agent {N} begins a session: {S}",
	actAskAgain:         "{L} asks agent {N} to look once more: {S}",
	actLease:            "agent {N} creates its Lease",
	actReadUnheard:      "{L} reads {S}",
	actReadLease:        "{L} reads that agent {N} has no Lease",
	actWriteUnheard:     "{L} writes to the state of {N}: {S}",
	actReportRestore:    "an agent reports the restore",
	actTaint:            "someone sets the out-of-service taint on Node {N}",
	actUntaint:          "someone removes the out-of-service taint from Node {N}",
	actRecordTaint:      "a manager records what Node {N} carries: {S}",
	actForgetTaint:      "a manager restarts and forgets the taint of {N}",
	actRenew:            "agent {N} renews its Lease",
	actCutOff:           "agent {N} is cut off from the API",
	actMarkSilent:       "a manager marks agent {N} as unreachable: {S}",
	actReadTaint:        "{L} reads the taint of {N} and the agent's Lease",
	actWriteTainted:     "{L} forces the detach from {N} on its taint: {S}",
	actWriteLapsed:      "{L} forces the detach from {N}, which was out of reach for long: {S}",
	actCut:              "the access of {N} is cut",
	actLift:             "the access of {N} is given back",
	actReadCut:          "{L} reads that the access of {N} is cut",
	actWriteCut:         "{L} forces the detach from {N}, whose access is cut: {S}",
	actShowLifted:       "{L} shows that the cut was lifted: {S}",
}

var answers = [...]string{"", " (the answer is lost)", " (the write is delayed)"}

// teller prints a path with names that stay: UIDs and leaders keep theirs, and objects have versions.
type teller struct {
	*model
	now      state
	versions [2]int
	leaders  [2]string
	lines    []string
}

func newTeller(m *model) *teller {
	named := *m
	named.fresh, named.freshBoot = 1, 2
	return &teller{model: &named, now: m.start(), versions: [2]int{1, 1}, leaders: [2]string{"leader-1", "leader-2"}}
}

// follow takes the step whose canonical outcome is to.
func (t *teller) follow(a act, to state) {
	var buffer []next
	for _, n := range t.steps(t.now, buffer) {
		if n.act.kind == a.kind && n.act.node == a.node && n.state.canonical() == to {
			t.take(n)
			return
		}
	}
	t.lines = append(t.lines, fmt.Sprintf("(no step %q leads on)", words[a.kind]))
}

func (t *teller) take(n next) {
	before := t.now
	t.now = n.state
	switch n.act.kind {
	case actCreate:
		t.fresh++
	case actReboot:
		t.freshBoot++
	}
	for i := range t.versions {
		if written(&before.node[i], &n.state.node[i]) ||
			n.act.kind == actFence && t.without != effectFenceChanges && int(n.act.node) == i {
			t.versions[i]++
		}
	}
	t.lines = append(t.lines, t.line(n.act, &before))
}

func written(before, after *nodeState) bool {
	was, is := before.entry, after.entry
	was.by, was.regained, is.by, is.regained = noFence, false, noFence, false
	return was != is || before.use != after.use || before.reported != after.reported ||
		before.declared != after.declared || before.said.recorded != after.said.recorded ||
		before.said.silent != after.said.silent
}

func (t *teller) line(a act, before *state) string {
	i := int(a.node)
	after := &t.now.node[i]
	va := after.va
	if va.phase == vaNone {
		va.uid = before.node[i].va.uid
	}
	held := after.hold.uid
	if held == 0 {
		held = before.node[i].call
	}
	line := strings.NewReplacer(
		"{L}", t.leaders[a.who],
		"{N}", nodeNames[i+1],
		"{S}", fmt.Sprintf("NodeVolumeState %s v%d (%s)", nodeNames[i+1], t.versions[i], after.tell()),
		"{V}", fmt.Sprintf("VolumeAttachment of %s (%s)", nodeNames[i+1],
			strings.TrimSpace(string(uidNames[va.uid])+" "+va.tell())),
		"{C}", t.now.lock.tell(),
		"{H}", string(uidNames[held]),
		"{X}", string(uidNames[after.kubelet.shown]),
		"{U}", string(uidNames[declaredUID(&before.node[i], after)]),
		"{K}", fmt.Sprintf("attached: %t, in use: %t", after.kubelet.listed, after.kubelet.inUse),
	).Replace(words[a.kind])
	if a.kind == actSetInUse || a.kind == actClear {
		line += answers[a.detail]
	}
	return line
}

func declaredUID(before, after *nodeState) int {
	return bits.TrailingZeros64(after.declared&^before.declared) % len(uidNames)
}

func (n *nodeState) tell() string {
	if !n.exists {
		return "absent"
	}
	text := "no entry"
	if n.entry.state != noEntry {
		text = "entry " + string(n.view().Entry.State) + " " + string(uidNames[n.entry.uid])
	}
	for _, w := range [...]struct {
		ok   bool
		word string
	}{
		{n.entry.forced, " forced"}, {n.entry.unprotected, " unprotected"}, {n.entry.detached, " detached"},
		{!n.reported, ", never reported"},
	} {
		if w.ok {
			text += w.word
		}
	}
	if n.use.foreign {
		return text + ", in use " + string(uidNames[n.use.uid]) + " by another machine"
	}
	if n.use.inUse {
		return text + ", in use " + string(uidNames[n.use.uid])
	}
	return text + ", not in use"
}

func (v attachmentState) tell() string {
	text := [...]string{"gone", "new", "published", "attached", "terminating", "unpublished, its name held"}[v.phase]
	if v.nameHeld && v.phase != vaNameOnly {
		text += ", its name held"
	}
	return text
}

func (c lockState) tell() string {
	if !c.exists {
		return "no lock"
	}
	text := "the lock (" + nodeNames[c.holder]
	if c.holder == 0 {
		text += "nobody"
	}
	if c.from != 0 {
		text += ", moved from " + nodeNames[c.from]
	}
	return text + ")"
}
