/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// The leaders. Both run the same code, and either may stop before any request for as long as it
// likes: the one that was deposed is simply the one that does not move. A write that is delayed on
// its way is the same thing as a leader that sleeps before it, a lost answer the same as a leader that begins again.
//
// An act that depends on a single object is one step: had the object been written between its read and its
// compare-and-swap, the latter would have been refused. The same holds for a second object whose answer cannot
// be taken back (a UID that is gone stays gone).

// object that is read before Attached is written.
type object uint8

const (
	readState object = iota
	readLock
	readVA
)

func (st *stepper) readOrder() [3]object {
	switch st.without {
	case effectOrderLock:
		return [3]object{readLock, readState, readVA}
	case effectOrderVA:
		return [3]object{readVA, readState, readLock}
	default:
		return [3]object{readState, readLock, readVA}
	}
}

func (l leader) stateWasRead(order [3]object) bool {
	for i := range l.reads {
		if order[i] == readState {
			return true
		}
	}
	return false
}

// leaderActs: whatever leader i may do now.
func (st *stepper) leaderActs(i int) {
	if st.from.leader[i].pc != idle {
		st.giveUp(i)
	}
	switch l := st.from.leader[i]; l.pc {
	case idle:
		for n := range st.nodes {
			st.create(i, n)
			st.beginAttached(i, n)
			st.markDetaching(i, n)
			st.holdName(i, n)
			st.decideDelete(i, n)
			st.forget(i, n)
			st.freeName(i, n)
			st.showLifted(i, n)
			if st.kubelet {
				st.beginListing(i, n)
				st.unlist(i, n)
				st.ask(i, n)
			}
			if st.intents {
				st.decideRelease(i, n)
				st.decideReleaseUnheard(i, n)
			}
		}
		if st.exclusive {
			st.lockActs(i)
		}
	case attaching:
		st.readForAttached(i, l)
	case attached:
		st.writeAttached(i, l)
	case marking:
		s := st.from
		s.leader[i] = leader{}
		s.node[l.node].entry = entry{state: entryDetaching, uid: l.uid}
		st.wroteState(&s, int(l.node))
		st.emit(act{actWriteDetaching, l.node, uint8(i), 0}, s)
	case deleting:
		st.delete(i, l)
	case moving, collecting, fencing, fence, fenced:
		st.moveActs(i, l)
	case releasing:
		s := st.from
		s.leader[i] = leader{}
		s.node[l.node].intent.phase = intentAbsent
		st.intentGone(&s, int(l.node))
		st.emit(act{actReleaseIntent, l.node, uint8(i), 0}, s)
	case unheard, releasingUnheard:
		st.releaseUnheard(i, l)
	case cutting:
		st.writeCut(i, l)
	case relying:
		st.rely(i, l)
	case listing, list, unlisted, unlistedInUse, awaiting:
		st.listActs(i, l)
	}
}

// giveUp: a leader may always begin again.
func (st *stepper) giveUp(i int) {
	s := st.from
	s.leader[i] = leader{}
	st.emit(act{kind: actGiveUp, who: uint8(i)}, s)
}

// create needs nothing: the leader may have decided on it at any time before.
func (st *stepper) create(i, n int) {
	if st.from.node[n].va.phase != vaNone {
		return
	}
	s := st.from
	s.node[n].va = attachmentState{phase: vaNew, uid: st.fresh}
	st.attachmentChanged(&s, n, attachmentState{})
	// A leader that is up to date wants no volume on a machine that is dead.
	st.out = append(st.out, next{act: act{actCreate, uint8(n), uint8(i), 0}, state: s, fault: st.from.node[n].dead})
}

func (st *stepper) beginAttached(i, n int) {
	elsewhere := st.usedElsewhere(n)
	if other := st.from.node[1-n]; other.behind {
		elsewhere = other.pastUse
	}
	if h := st.from.node[n]; st.waits && h.behind && !h.unconfirmed {
		return
	}
	if !st.from.node[n].exists || st.rules.MayBringIn(st.exclusive, elsewhere) != GuardNone {
		return
	}
	st.readForAttached(i, leader{pc: attaching, node: uint8(n)})
}

// readForAttached makes the next of the reads; after the last one the leader decides.
func (st *stepper) readForAttached(i int, l leader) {
	order := st.readOrder()
	what := order[l.reads]
	l.reads++
	locks, attachments := []lockState{st.from.lock}, []attachmentState{st.from.node[l.node].va}
	if st.without == effectLive {
		locks, attachments = append(locks, st.from.older.lock), append(attachments, st.from.older.va[l.node])
	}
	switch what {
	case readState:
		st.afterRead(i, l, actReadState, 0)
	case readLock:
		if !st.exclusive {
			st.afterRead(i, l, actReadLock, 0)
			return
		}
		for j, c := range locks {
			l.lock = c
			st.afterRead(i, l, actReadLock, uint8(j))
		}
	case readVA:
		for j, va := range attachments {
			l.va = va
			st.afterRead(i, l, actReadVA, uint8(j))
		}
	}
}

func (st *stepper) afterRead(i int, l leader, kind actKind, detail uint8) {
	n := &st.from.node[l.node]
	s := st.from
	if l.reads < 3 {
		s.leader[i] = l
		st.emit(act{kind, l.node, uint8(i), detail}, s)
		return
	}
	guard := st.rules.MayWriteAttached(n.view(), nodeNames[l.node+1], st.exclusive, l.lock.view(), l.va.view())
	if guard == GuardNone && st.mayHandOver(l.node) {
		s.leader[i] = leader{pc: attached, node: l.node, uid: l.va.uid}
	} else {
		s.leader[i] = leader{}
	}
	st.emit(act{kind, l.node, uint8(i), detail}, s)
}

func (st *stepper) writeAttached(i int, l leader) {
	s := st.from
	s.leader[i] = leader{}
	s.node[l.node].entry = entry{state: entryAttached, uid: l.uid}
	st.wroteState(&s, int(l.node))
	st.emit(act{actWriteAttached, l.node, uint8(i), 0}, s)
}

// markDetaching for any UID that is about, and for one that has long been gone.
func (st *stepper) markDetaching(i, n int) {
	h := &st.from.node[n]
	if !h.exists {
		return
	}
	const longGone = freshInExploration + 1
	tried := [...]uint8{h.va.uid, h.entry.uid, h.use.uid, h.hold.uid, longGone}
	for j, uid := range tried {
		if uid == 0 || contains(tried[:j], uid) || uid == longGone && h.entry.state == noEntry {
			continue
		}
		stands := h.entry.state == entryDetaching && h.entry.uid == uid
		// A detach that rests on the agent's release may come to rest on evidence, when the kubelet's agent does not check
		// any more.
		if stands && (h.entry.forced || !st.kubelet) {
			continue
		}
		forced := false
		guard := st.rules.MayMarkDetaching(h.view(), uidNames[uid], false)
		if stands && guard == GuardNone {
			guard = GuardAgentLooked
		}
		if guard != GuardNone && (st.force || h.isDeclared(uid)) {
			forced = true
			guard = st.rules.MayMarkDetaching(h.view(), uidNames[uid], true)
		}
		switch {
		case guard == GuardNone:
			st.writeDetaching(i, n, uid, forced)
		case st.rules.MayMarkDetaching(h.view(), uidNames[uid], true) != GuardNone:
		case st.machines && h.use.gone:
			st.writeDeclared(i, n, uid)
		case st.asserts:
			st.relyOn(i, n, uid)
		case st.severs:
			st.readCut(i, n, uid)
		}
	}
}

func (st *stepper) writeDetaching(i, n int, uid uint8, forced bool) {
	s := st.from
	if st.without == effectCAS && !forced {
		s.leader[i] = leader{pc: marking, node: uint8(n), uid: uid}
		st.emit(act{actDecideDetaching, uint8(n), uint8(i), uid}, s)
		return
	}
	h := &s.node[n]
	h.entry = entry{
		state: entryDetaching, uid: uid, forced: forced,
		declared: st.machines && forced && (st.without == effectDeclared || h.isDeclared(uid)),
	}
	if forced {
		h.entry.unprotected = !st.cuts && st.without != effectUnprotected
		h.excused |= 1 << uid
		st.wroteState(&s, n)
		st.out = append(st.out, next{act: act{actWriteForced, uint8(n), uint8(i), uid}, state: s, fault: !h.isDeclared(uid)})
		return
	}
	st.wroteState(&s, n)
	st.emit(act{actWriteDetaching, uint8(n), uint8(i), uid}, s)
}

// writeDeclared: an administrator has said that the machine that uses the volume is off, and it is.
func (st *stepper) writeDeclared(i, n int, uid uint8) {
	s := st.from
	s.node[n].entry = entry{state: entryDetaching, uid: uid, forced: true, declared: true, unprotected: !st.cuts}
	s.node[n].excused |= 1 << uid
	st.wroteState(&s, n)
	st.emit(act{actWriteVouched, uint8(n), uint8(i), uid}, s)
}

// holdName puts our finalizer on an attachment that is being forced away.
func (st *stepper) holdName(i, n int) {
	h := &st.from.node[n]
	if !h.entry.forced || h.entry.uid != h.va.uid || h.va.nameHeld || h.va.phase == vaNone || h.va.terminating() {
		return
	}
	s := st.from
	s.node[n].va.nameHeld = true
	st.emit(act{actHoldName, uint8(n), uint8(i), 0}, s)
}

func (st *stepper) decideDelete(i, n int) {
	h := &st.from.node[n]
	if h.va.phase == vaNone || h.va.terminating() || st.kubelet {
		return
	}
	if st.rules.MayDelete(st.seen(h, effectCutDelete), h.va.view()) != GuardNone {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: deleting, node: uint8(n), uid: h.va.uid}
	st.emit(act{actDecideDelete, uint8(n), uint8(i), 0}, s)
}

func (st *stepper) delete(i int, l leader) {
	s := st.from
	s.leader[i] = leader{}
	va := s.node[l.node].va
	hits := va.phase != vaNone && !va.terminating() && (va.uid == l.uid || st.without == effectUID)
	if hits {
		st.deleteAttachment(&s, int(l.node))
	}
	st.emit(act{actDelete, l.node, uint8(i), 0}, s)
}

// forget removes the entry, or marks it detached.
func (st *stepper) forget(i, n int) {
	h := &st.from.node[n]
	if h.entry.state == noEntry {
		return
	}
	if st.rules.MayForget(h.view(), h.va.view()) == GuardNone {
		s := st.from
		s.node[n].entry = entry{}
		st.wroteState(&s, n)
		st.emit(act{actForget, uint8(n), uint8(i), 0}, s)
	}
	if !h.entry.detached && st.rules.MayMarkDetached(h.view(), h.va.view()) == GuardNone {
		s := st.from
		s.node[n].entry.detached = true
		st.wroteState(&s, n)
		st.emit(act{actMarkDetached, uint8(n), uint8(i), 0}, s)
	}
}

func (st *stepper) freeName(i, n int) {
	h := &st.from.node[n]
	if !h.va.nameHeld || st.rules.MayFreeName(h.view(), h.va.view()) != GuardNone {
		return
	}
	s := st.from
	s.node[n].va.nameHeld = false
	if h.va.phase == vaNameOnly {
		s.node[n].va.phase = vaNone
	}
	st.attachmentChanged(&s, n, h.va)
	st.emit(act{actFreeName, uint8(n), uint8(i), 0}, s)
}

func contains(list []uint8, u uint8) bool {
	for _, v := range list {
		if v == u {
			return true
		}
	}
	return false
}
