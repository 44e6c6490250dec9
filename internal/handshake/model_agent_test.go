/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// The agent of a node, and its host. The agent's writes touch a single object, so each is one step; what
// makes them dangerous is that their answer may be lost or they may arrive late, and that what the agent calls goes
// on without it.

// hostActs: what the driver and the kernel do.
func (st *stepper) hostActs(n int) {
	h := &st.from.node[n]
	if h.call != 0 {
		st.endCall(n, holdMounted, actCallMounts)
		if st.calls {
			st.endCall(n, holdStaged, actCallStages)
			st.endCall(n, holdNone, actCallFails)
		}
	}
	// That no call runs beyond its deadline is what the protocol asks of drivers.
	if h.rec.pending && h.call == 0 && !h.waits {
		s := st.from
		s.node[n].rec.pending = false
		// What ended unseen may have undone an unstage that came before.
		if st.without != effectUnstageAgain {
			s.node[n].rec.released = false
		}
		st.emit(act{kind: actDeadline, node: uint8(n)}, s)
	}
	if h.late.kind != noWrite {
		s := st.from
		late := h.late
		st.wroteState(&s, n)
		s.node[n].late = lateWrite{}
		if h.exists {
			if late.kind == writeInUse {
				s.node[n].use = useState{uid: late.uid, inUse: true}
			} else {
				s.node[n].use = useState{}
			}
		}
		st.fault(act{kind: actLateWrite, node: uint8(n), detail: uint8(late.kind)}, s)
	}
	if st.hand && h.hold.kind == holdMounted {
		s := st.from
		s.node[n].hold.kind = holdStaged
		st.fault(act{kind: actUnmountByHand, node: uint8(n)}, s)
	}
}

func (st *stepper) endCall(n int, kind holdKind, what actKind) {
	s := st.from
	h := &s.node[n]
	if kind != holdNone && h.hold.kind == holdNone {
		h.hold = hold{uid: h.call, cut: h.isExcused(h.call) && !(h.va.uid == h.call && h.va.published())}
	}
	if kind > h.hold.kind {
		h.hold.kind = kind
	}
	h.call = 0
	if h.waits {
		h.waits, h.rec.pending = false, false
	}
	st.emit(act{kind: what, node: uint8(n)}, s)
}

// agentActs: whatever the agent may do now.
func (st *stepper) agentActs(n int) {
	h := &st.from.node[n]
	if h.dead {
		return
	}
	if !h.up {
		s := st.from
		s.node[n].up, s.node[n].between = true, st.restore || st.asserts
		if st.without == effectDeadline {
			s.node[n].rec.pending = false
		}
		st.emit(act{kind: actStart, node: uint8(n)}, s)
		return
	}
	if st.crash {
		s := st.from
		s.node[n].up, s.node[n].waits, s.node[n].acked, s.node[n].intent.cleared = false, false, false, false
		st.fault(act{kind: actCrash, node: uint8(n)}, s)
	}
	if h.waits && st.calls {
		s := st.from
		s.node[n].waits = false
		st.fault(act{kind: actAbandon, node: uint8(n)}, s)
	}
	if h.between {
		if h.exists && !h.waits {
			st.beginSession(n)
		}
		return
	}
	if st.agentless && h.reported && !h.leased {
		s := st.from
		s.node[n].leased = true
		st.emit(act{kind: actLease, node: uint8(n)}, s)
	}
	if h.exists && (!h.reported || !h.booted) {
		st.report(n)
		return
	}
	if !h.waits {
		st.setInUse(n)
		st.stage(n)
		st.unstage(n)
		st.clearInUse(n)
	}
}

// report is the first complete one, under this object's UID and this boot.
func (st *stepper) report(n int) {
	s := st.from
	h := &s.node[n]
	st.wroteState(&s, n)
	h.reported, h.booted, h.acked = true, true, true
	switch {
	case h.use.foreign: // carried on
	case h.rec.uid != 0 && (!h.rec.released || h.rec.pending):
		h.use = useState{uid: h.rec.uid, inUse: true}
	case h.hold.kind == holdMounted:
		h.use = useState{uid: h.hold.uid, inUse: true}
	}
	st.emit(act{kind: actReport, node: uint8(n)}, s)
}

// write lets an agent's write succeed, succeed without an answer, or arrive late.
func (st *stepper) write(n int, a act, kind writeKind, uid uint8) {
	apply := func(h *nodeState) {
		if kind == writeInUse {
			h.use = useState{uid: uid, inUse: true}
		} else {
			h.use = useState{}
		}
	}
	s := st.from
	st.wroteState(&s, n)
	apply(&s.node[n])
	s.node[n].acked = true
	if kind == writeClear {
		s.node[n].rec = record{}
	}
	st.emit(a, s)
	if !st.late {
		return
	}
	s = st.from
	st.wroteState(&s, n)
	apply(&s.node[n])
	s.node[n].acked = false
	a.detail = 1
	st.fault(a, s)
	if st.from.node[n].late.kind != noWrite {
		return
	}
	s = st.from
	s.node[n].late = lateWrite{kind, uid}
	s.node[n].acked = false
	a.detail = 2
	st.fault(a, s)
}

// setInUse, also where it is set already and this process has no acknowledged write yet.
func (st *stepper) setInUse(n int) {
	h := &st.from.node[n]
	uid := h.entry.uid
	// No manager confirms the session of an agent that it has not heard.
	if st.agentless && !h.leased {
		return
	}
	if !h.exists || uid == 0 || h.use == (useState{uid: uid, inUse: true}) && h.acked {
		return
	}
	if !h.rec.free(uid) || h.hold.kind != holdNone && h.hold.uid != uid {
		return
	}
	if st.rules.MaySetInUse(h.view(), uidNames[uid]) != GuardNone {
		return
	}
	st.write(n, act{kind: actSetInUse, node: uint8(n)}, writeInUse, uid)
}

// stage writes the record and then calls the driver.
func (st *stepper) stage(n int) {
	h := &st.from.node[n]
	for _, uid := range [...]uint8{h.use.uid, h.entry.uid} {
		if uid == 0 || uid == h.entry.uid && h.use.uid != uid && h.entry.state != entryAttached {
			continue
		}
		if h.hold.kind != holdNone && h.hold.uid != uid || !h.rec.free(uid) || h.hold.kind == holdMounted {
			continue
		}
		if !h.acked && st.without != effectAcknowledged || st.rules.MayStage(h.view(), uidNames[uid]) != GuardNone {
			continue
		}
		recorded := h.rec.uid == uid && h.rec.pending && !h.rec.released
		switch s := st.from; {
		case st.without == effectRecord && h.call == 0:
			s.node[n].call, s.node[n].waits = uid, true
			st.emit(act{kind: actCall, node: uint8(n)}, s)
		case st.without == effectRecord:
		case !recorded:
			s.node[n].rec = record{uid: uid, pending: true}
			if !st.calls {
				s.node[n].call, s.node[n].waits = uid, true
			}
			st.emit(act{kind: actRecord, node: uint8(n)}, s)
		case h.call == 0:
			s.node[n].call, s.node[n].waits = uid, true
			st.emit(act{kind: actCall, node: uint8(n)}, s)
		}
		if h.use.uid == h.entry.uid {
			break
		}
	}
}

func (st *stepper) unstage(n int) {
	h := &st.from.node[n]
	if h.intent.published || h.intent.cleared || h.hold.kind == holdNone && (h.rec.uid == 0 || h.rec.released) {
		return
	}
	s := st.from
	s.node[n].hold = hold{}
	s.node[n].rec.released = h.rec.uid != 0
	st.emit(act{kind: actUnstage, node: uint8(n)}, s)
	if st.lies && h.hold.kind == holdMounted && h.rec.uid != 0 {
		s := st.from
		s.node[n].rec.released = true
		st.fault(act{kind: actUnstageLies, node: uint8(n)}, s)
	}
}

func (st *stepper) clearInUse(n int) {
	h := &st.from.node[n]
	if !h.exists || !h.use.inUse || h.use.foreign || h.intent.published || h.intent.cleared {
		return
	}
	held := Held{
		Released:   h.rec.uid == 0 || h.rec.released,
		CallsEnded: !h.rec.pending && !h.waits,
		Mounted:    h.hold.kind == holdMounted,
	}
	if st.rules.MayClearInUse(held) != GuardNone {
		return
	}
	st.write(n, act{kind: actClear, node: uint8(n)}, writeClear, 0)
}
