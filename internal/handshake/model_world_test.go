/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// world says what can happen in one exploration. Each switch multiplies the states, so several
// worlds put together what belongs together.
type world struct {
	name      string
	nodes     int
	leaders   int
	exclusive bool
	// cuts: the driver's unpublish cuts the node's access, and its publish opens it again, for an old mount too.
	cuts bool
	// calls: a stage call takes time and can outlive its agent.
	calls bool
	// crash: an agent may die at any time and start again.
	crash bool
	// late: an agent's write may get no acknowledgement, or arrive late.
	late bool
	// reboot: a host may lose its mounts and its agent.
	reboot bool
	// force: there may be evidence that this machine's access to the volume is cut, which overrules a live agent too.
	force bool
	// stranger: someone deletes a VolumeAttachment.
	stranger bool
	// lost: a NodeVolumeState, or an intent, is gone without our having let it go.
	lost bool
	// hand: someone unmounts by hand.
	hand bool
	// lies: a driver says that it has unstaged and has not.
	lies bool
	// intents: one intent is watched from its creation to its end.
	intents bool
	// kubelet: the kubelet mounts, and the agent only observes.
	kubelet bool
	// unregisters: the Node may be deleted while its kubelet goes on.
	unregisters bool
	// declare: an administrator declares attachments released, also wrongly.
	declare bool
	// unreported: in the beginning the agents have not reported under the UIDs of the NodeVolumeStates.
	unreported bool
	// dies: a machine may never come back.
	dies bool
	// replaced: then there may be a new one of its name.
	replaced bool
	// nodes that are dead may be deleted, and their state goes once nothing is left there.
	removed bool
	// first: of two nodes, only the first one's machine dies, state is lost and attachments are declared.
	first bool
	// once: what is not on a machine that is dead is declared released once only, until that is forgotten.
	once bool
	// truth: only what was on a machine that is dead is declared released.
	truth bool
	// restore: the API goes back to what it was.
	restore bool
	// excuses: an administrator excuses the first node from a restore. The backup contains an excuse from an earlier one.
	excuses bool
	// asserts: something is said of the whole node, rightly or wrongly.
	asserts bool
	// machines: there may be two of one name.
	machines bool
	// agentless: in the beginning there is no agent, and it may begin with any step.
	agentless bool
	// collect: locks that nothing needs are given up and deleted.
	collect bool
	// severs: the access of the first node may be cut, and given back.
	severs bool
	// neighbours: other managers, of other volumes, write the same states.
	neighbours bool
	// overwrites: they do so with what they read before.
	overwrites bool
	// overwritesLocks: they write the lock back as it was before it was moved.
	overwritesLocks bool
	// lags: the manager that attaches is another one than the one that confirms sessions, and has its own cache of what
	// is used elsewhere.
	lags bool
	// waits: it attaches by that cache only once it contains the confirmation of the node's session.
	waits bool
}

// effect names a guard that is not a condition on what was read, but the way in which it is
// read or written.
type effect string

const (
	effectNone          effect = ""
	effectUID           effect = "UID precondition on DELETE"
	effectCAS           effect = "compare-and-swap"
	effectOrderLock     effect = "state read before lock"
	effectOrderVA       effect = "state read before attachment"
	effectLive          effect = "live reads"
	effectRecord        effect = "record before the call"
	effectDeadline      effect = "deadline survives a restart"
	effectAcknowledged  effect = "only acknowledged writes count"
	effectFence         effect = "fence before MovedFrom is cleared"
	effectFenceChanges  effect = "the fence is a change"
	effectUnprotected   effect = "unprotected detach is said"
	effectIntentLive    effect = "intent read live"
	effectUnlist        effect = "unlisting before the delete"
	effectUnlistChanges effect = "unlisting is a change"
	effectLookAgain     effect = "agent looks again after the unlisting"
	effectMissing       effect = "a Node that is not there may list anything"
	effectLookAfter     effect = "agent looks after it has read"
	effectUnstageAgain  effect = "unstage again after an unknown end"
	effectDeclaredUID   effect = "a declaration speaks of one UID"
	effectCollectCAS    effect = "version precondition on the lock's DELETE"
	effectCollectFenced effect = "fence before the lock is deleted"
	effectRecorded      effect = "a record that was written again proves nothing"
	effectAskAgain      effect = "agent looks again after a reboot"
	effectTouched       effect = "a record that was written in this boot counts"
	effectSession       effect = "a session ends with the connection"
	effectRestates      effect = "a session begins with what the agent knows itself"
	effectNewNumber     effect = "no manager has confirmed a new session"
	effectListensAgain  effect = "a manager whose watch ended listens again"
	effectDeclared      effect = "time says nothing of another machine"
	effectHeardLive     effect = "only a renewal that was seen counts"
	effectOrderLease    effect = "state read before Lease"
	effectSessionWrites effect = "a session begins with a write"
	effectSessionVoids  effect = "a session contradicts what is asserted"
	effectRecordKept    effect = "the record of a taint outlives the manager"
	effectExcuseOfThis  effect = "an excuse names the restore"
	effectEvidenceOfNow effect = "nothing of before a restore is evidence"
	effectCutLive       effect = "that access is cut is read"
	effectCutMachine    effect = "access is cut of the machine that uses the volume"
	effectCutOrder      effect = "state read before the fence"
	effectCutAgain      effect = "a fence that holds again is another one"
	effectCutConfirm    effect = "the fence is read once more before another node may use the volume"
	effectCutDelete     effect = "the fence is read once more before the delete"
	effectUnheardCAS    effect = "what lets an intent go is written at the version that was read"
)

// model is a world and what is left out of the protocol.
type model struct {
	world
	rules   Protocol
	without effect
	// fresh is the name of the next UID, freshBoot that of the next boot. Renaming makes them small again.
	fresh, freshBoot uint8
}

// freshInExploration is above every canonical name.
const freshInExploration = 40

// act is one step of one process, distinguished from the others of its state.
type act struct {
	kind actKind
	node uint8
	// leader's number, detail what else identifies the act.
	who, detail uint8
}

// next is what follows a state.
type next struct {
	act   act
	state state
	// fault: the step is not one that a healthy cluster would take in the end.
	fault bool
	// broken names the invariant that the step itself breaks.
	broken Invariant
}

// stepper collects what follows one state.
type stepper struct {
	*model
	from state
	out  []next
}

func (m *model) steps(s state, buffer []next) []next {
	st := &stepper{model: m, from: s, out: buffer[:0]}
	for n := range m.nodes {
		st.attacher(n)
		st.world(n)
		if m.kubelet {
			st.kubeletActs(n)
			st.observerActs(n)
		} else {
			st.hostActs(n)
			st.agentActs(n)
		}
		if m.intents {
			st.intentActs(n)
		}
	}
	if m.neighbours {
		st.neighbourActs()
	}
	if m.restore {
		st.restoreActs()
	}
	for l := range m.leaders {
		st.leaderActs(l)
	}
	return st.out
}

func (st *stepper) emit(a act, s state) { st.out = append(st.out, next{act: a, state: s}) }

func (st *stepper) fault(a act, s state) {
	st.out = append(st.out, next{act: a, state: s, fault: true})
}

// wroteState voids everything that waits to be written at an older version of the node's state.
func (st *stepper) wroteState(s *state, n int) {
	s.node[n].wrote = true
	s.node[n].cut.since = s.node[n].cut.severed
	if st.without == effectCAS {
		return
	}
	s.node[n].late = lateWrite{}
	if st.without != effectLookAfter {
		s.node[n].kubelet.looking, s.node[n].kubelet.saw, s.node[n].kubelet.quiet = false, false, false
	}
	for i := range s.leader {
		l := &s.leader[i]
		if int(l.node) != n {
			continue
		}
		switch l.pc {
		case attaching:
			if l.stateWasRead(st.readOrder()) {
				*l = leader{}
			}
		case attached, marking, fence, unheard, releasingUnheard, cutting:
			if l.pc == cutting && st.without == effectCutOrder {
				continue
			}
			if l.pc == releasingUnheard && st.without == effectUnheardCAS {
				continue
			}
			*l = leader{}
		}
	}
}

// wroteLock voids everything that waits to be written at an older version of the lock.
func (st *stepper) wroteLock(s *state, was lockState) {
	if st.without == effectLive || st.overwritesLocks && was.from == 0 {
		s.older.lock = was
	}
	for i := range s.leader {
		switch s.leader[i].pc {
		case moving, fencing, fence, fenced:
			s.leader[i] = leader{}
		}
	}
}

// wroteNode voids what waits to be written at an older version of the Node.
func (st *stepper) wroteNode(s *state) {
	s.node[0].wroteNode = true
	for i := range s.leader {
		switch s.leader[i].pc {
		case listing, list:
			s.leader[i] = leader{}
		}
	}
}

// attachmentChanged ends what can have no effect any more: a UID never comes back.
func (st *stepper) attachmentChanged(s *state, n int, was attachmentState) {
	if st.without == effectLive {
		s.older.va[n] = was
	}
	if s.node[n].va.phase == vaNone {
		s.node[n].va = attachmentState{}
	}
	if st.without == effectUID {
		return
	}
	for i := range s.leader {
		l := &s.leader[i]
		if l.pc == deleting && int(l.node) == n && (l.uid != s.node[n].va.uid || s.node[n].va.terminating()) {
			*l = leader{}
		}
	}
}

// attacher: the driver's external-attacher, which acts on the VolumeAttachment alone.
func (st *stepper) attacher(n int) {
	s := st.from
	va := &s.node[n].va
	was := *va
	switch va.phase {
	case vaNew:
		va.phase = vaPublished
		st.emit(act{kind: actPublish, node: uint8(n)}, s)
	case vaPublished:
		va.phase = vaAttached
		st.attachmentChanged(&s, n, was)
		st.emit(act{kind: actStatusAttached, node: uint8(n)}, s)
	case vaGoing:
		broken := st.unpublishBreaks(&s.node[n])
		for _, h := range [...]*hold{&s.node[n].hold, &s.node[n].away.hold} {
			h.cut = h.kind != holdNone
		}
		va.phase = vaNone
		if va.nameHeld {
			va.phase = vaNameOnly
		}
		st.attachmentChanged(&s, n, was)
		st.out = append(st.out, next{act: act{kind: actUnpublish, node: uint8(n)}, state: s, broken: broken})
	}
}

// world: what befalls a node from outside.
func (st *stepper) world(n int) {
	if st.reboot && st.kubelet {
		st.rebootUnderKubelet(n)
	} else if st.reboot {
		s := st.from
		h := &s.node[n]
		h.hold, h.call, h.waits, h.up, h.acked = hold{}, 0, false, false, false
		// The record carries the boot ID, so that what it speaks of is known to be over.
		h.rec.pending, h.rec.released = false, h.rec.uid != 0
		h.booted, h.intent.published, h.intent.cleared = false, false, false
		st.fault(act{kind: actReboot, node: uint8(n)}, s)
	}
	if va := st.from.node[n].va; st.stranger && va.phase != vaNone && !va.terminating() {
		s := st.from
		s.node[n].excused |= 1 << va.uid
		st.deleteAttachment(&s, n)
		st.fault(act{kind: actStrangerDeletes, node: uint8(n)}, s)
	}
	if st.first && n > 0 {
		return
	}
	if st.declare {
		st.administrator(n)
	}
	if st.dies {
		st.fate(n)
	}
	h := &st.from.node[n]
	if st.machines {
		st.machineActs(n)
	}
	if st.asserts {
		st.assertActs(n)
	}
	if st.severs {
		st.cutActs(n)
	}
	if h.exists && st.lost {
		st.stateGone(n, actStateLost, true)
	}
	// Where its machine is dead a state is made only because an attachment is left there.
	if !h.exists && (!h.dead || h.va.phase != vaNone) {
		s := st.from
		s.node[n].exists = true
		st.wroteState(&s, n)
		st.emit(act{kind: actStateCreated, node: uint8(n)}, s)
	}
}

// stateGone: the NodeVolumeState with all that it says, declarations included.
func (st *stepper) stateGone(n int, kind actKind, fault bool) {
	s := st.from
	h := &s.node[n]
	h.exists, h.reported, h.entry, h.use, h.booted, h.acked = false, false, entry{}, useState{}, false, false
	h.declared = 0
	if kind == actStateRemoved {
		h.kubelet.inUse, h.kubelet.listed = false, false
		st.wroteNode(&s)
	}
	st.wroteState(&s, n)
	st.out = append(st.out, next{act: act{kind: kind, node: uint8(n)}, state: s, fault: fault})
}

// administrator declares any attachment that anything names. In a healthy cluster that happens only for a machine
// that is dead. The declaration excuses what is, or may be, in use then, and nothing that comes after it. A kubelet
// asks no controller.
func (st *stepper) administrator(n int) {
	h := &st.from.node[n]
	if !h.exists || st.truth && !h.dead || st.once && !h.dead && h.declared != 0 {
		return
	}
	named := [...]uint8{h.va.uid, h.entry.uid, h.use.uid, h.hold.uid, h.rec.uid}
	for j, uid := range named {
		if uid == 0 || contains(named[:j], uid) || h.isDeclared(uid) {
			continue
		}
		s := st.from
		s.node[n].declared |= 1 << uid
		if st.kubelet || h.mayUse(uid) {
			s.node[n].excused |= 1 << uid
		}
		if st.without == effectDeclaredUID {
			s.node[n].declared = ^uint64(0)
		}
		st.wroteState(&s, n)
		st.out = append(st.out, next{act: act{kind: actDeclare, node: uint8(n), detail: uid}, state: s, fault: !h.dead})
	}
}

// mayUse: the agent uses the attachment or may begin to.
func (n *nodeState) mayUse(uid uint8) bool {
	return n.entry.state == entryAttached && n.entry.uid == uid || n.use.uid == uid || n.hold.uid == uid ||
		n.rec.uid == uid ||
		n.call == uid || n.late.uid == uid
}

// fate: the machine is gone for good with all that was on it, or there is a new one of its name.
func (st *stepper) fate(n int) {
	s := st.from
	h := &s.node[n]
	if h.dead && st.removed && h.exists && h.va.phase == vaNone && h.forgotten() && (h.use.uid == 0 || !h.view().InUse()) {
		st.stateGone(n, actStateRemoved, false)
	}
	if h.dead {
		h.dead = false
		if st.replaced {
			st.fault(act{kind: actReplaced, node: uint8(n)}, s)
		}
		return
	}
	h.hold, h.rec, h.call, h.waits, h.up, h.acked, h.booted, h.dead = hold{}, record{}, 0, false, false, false, false, true
	h.intent.published, h.intent.cleared = false, false
	h.kubelet.verified, h.kubelet.looking, h.kubelet.saw, h.kubelet.quiet = 0, false, false, false
	h.kubelet.shown, h.kubelet.asSeen = 0, false
	st.fault(act{kind: actDies, node: uint8(n)}, s)
}

// deleteAttachment is the API server's DELETE: what has finalizers stays, terminating.
func (st *stepper) deleteAttachment(s *state, n int) {
	va := &s.node[n].va
	was := *va
	switch {
	case va.phase != vaNew:
		va.phase = vaGoing
	case va.nameHeld:
		va.phase = vaNameOnly
	default:
		va.phase = vaNone
	}
	st.attachmentChanged(s, n, was)
}
