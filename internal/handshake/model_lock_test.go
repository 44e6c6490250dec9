/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// lockActs: how a leader that is idle begins with the lock.
func (st *stepper) lockActs(i int) {
	c := st.from.lock
	switch {
	case !c.exists:
		for n := range st.nodes {
			s := st.from
			s.lock = lockState{exists: true, holder: uint8(n) + 1}
			st.wroteLock(&s, c)
			st.emit(act{actCreateLock, uint8(n), uint8(i), 0}, s)
		}
	case c.holder == 0 && c.from == 0:
		for n := range st.nodes {
			s := st.from
			s.lock.holder = uint8(n) + 1
			st.wroteLock(&s, c)
			st.emit(act{actTakeLock, uint8(n), uint8(i), 0}, s)
		}
	case c.from != 0:
		s := st.from
		s.leader[i] = leader{pc: fencing, node: c.from - 1}
		st.emit(act{actReadMovedLock, c.from - 1, uint8(i), 0}, s)
	}
	if c.holder != 0 {
		st.decideMove(i, c)
	}
	if st.collect && c.exists {
		st.collectLock(i, c, false)
	}
}

// collectLock deletes the lock, whatever may want it next. It is one object, so it is one step.
func (st *stepper) collectLock(i int, c lockState, fenced bool) {
	if st.rules.MayCollectLock(c.view(), fenced || st.without == effectCollectFenced) != GuardNone {
		return
	}
	s := st.from
	if st.without == effectCollectCAS {
		s.leader[i] = leader{pc: collecting}
		st.emit(act{actDecideCollect, 0, uint8(i), 0}, s)
		return
	}
	s.lock = lockState{}
	st.wroteLock(&s, st.from.lock)
	st.emit(act{actCollectLock, 0, uint8(i), 0}, s)
}

// decideMove reads the lock, its holder's state and attachment, and keeps the lock's version.
func (st *stepper) decideMove(i int, c lockState) {
	holder := &st.from.node[c.holder-1]
	if st.rules.MayMoveLock(c.view(), holder.view(), holder.va.view()) != GuardNone {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: moving, node: c.holder - 1}
	st.emit(act{actDecideMove, c.holder - 1, uint8(i), 0}, s)
}

// write of a lock that is being moved from node, to the other one or to none.
func (st *stepper) moveLock(i int, node, to uint8, kind actKind) {
	s := st.from
	s.leader[i] = leader{}
	s.lock.from, s.lock.holder = node+1, to
	st.wroteLock(&s, st.from.lock)
	st.emit(act{kind, node, uint8(i), 0}, s)
}

// moveActs: the writes of a move, each at the version of the lock that was read first.
func (st *stepper) moveActs(i int, l leader) {
	s := st.from
	was := s.lock
	n := int(l.node)
	switch l.pc {
	case moving:
		st.moveLock(i, l.node, 2-l.node, actMoveLock)
		if st.collect {
			st.moveLock(i, l.node, 0, actGiveUpLock)
		}
	case collecting:
		s.leader[i] = leader{}
		s.lock = lockState{}
		st.wroteLock(&s, was)
		st.emit(act{actCollectLock, 0, uint8(i), 0}, s)
	case fencing:
		from := &st.from.node[n]
		if st.rules.MayFence(from.view(), from.va.view()) != GuardNone {
			return
		}
		s.leader[i].pc = fence
		if !from.exists || st.without == effectFence {
			s.leader[i].pc = fenced
		}
		st.emit(act{actDecideFence, l.node, uint8(i), 0}, s)
	case fence:
		s.leader[i].pc = fenced
		if st.without != effectFenceChanges {
			st.wroteState(&s, n)
		}
		st.emit(act{actFence, l.node, uint8(i), 0}, s)
	case fenced:
		s.leader[i] = leader{}
		s.lock.from = 0
		st.wroteLock(&s, was)
		st.emit(act{actClearMovedFrom, l.node, uint8(i), 0}, s)
		if st.collect {
			st.collectLock(i, was, true)
		}
	}
}
