/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// claimActs: how a leader that is idle begins with the claim.
func (st *stepper) claimActs(i int) {
	c := st.from.claim
	switch {
	case !c.exists:
		for n := range st.nodes {
			s := st.from
			s.claim = claimState{exists: true, holder: uint8(n) + 1}
			st.wroteClaim(&s, c)
			st.emit(act{actCreateClaim, uint8(n), uint8(i), 0}, s)
		}
	case c.holder == 0 && c.from == 0:
		for n := range st.nodes {
			s := st.from
			s.claim.holder = uint8(n) + 1
			st.wroteClaim(&s, c)
			st.emit(act{actTakeClaim, uint8(n), uint8(i), 0}, s)
		}
	case c.from != 0:
		s := st.from
		s.leader[i] = leader{pc: fencing, node: c.from - 1}
		st.emit(act{actReadMovedClaim, c.from - 1, uint8(i), 0}, s)
	}
	if c.holder != 0 {
		st.decideMove(i, c)
	}
	if st.collect && c.exists {
		st.collectClaim(i, c, false)
	}
}

// collectClaim deletes the claim, whoever may want it next. It is one object, so it is one step.
func (st *stepper) collectClaim(i int, c claimState, fenced bool) {
	if st.rules.MayCollectClaim(c.view(), fenced || st.without == effectCollectFenced) != GuardNone {
		return
	}
	s := st.from
	if st.without == effectCollectCAS {
		s.leader[i] = leader{pc: collecting}
		st.emit(act{actDecideCollect, 0, uint8(i), 0}, s)
		return
	}
	s.claim = claimState{}
	st.wroteClaim(&s, st.from.claim)
	st.emit(act{actCollectClaim, 0, uint8(i), 0}, s)
}

// decideMove reads the claim, its holder's state and attachment, and keeps the claim's version.
func (st *stepper) decideMove(i int, c claimState) {
	holder := &st.from.node[c.holder-1]
	if st.rules.MayMoveClaim(c.view(), holder.view(), holder.va.view()) != GuardNone {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: moving, node: c.holder - 1}
	st.emit(act{actDecideMove, c.holder - 1, uint8(i), 0}, s)
}

// write of a claim that is being moved from node, to the other one or to nobody.
func (st *stepper) moveClaim(i int, node, to uint8, kind actKind) {
	s := st.from
	s.leader[i] = leader{}
	s.claim.from, s.claim.holder = node+1, to
	st.wroteClaim(&s, st.from.claim)
	st.emit(act{kind, node, uint8(i), 0}, s)
}

// moveActs: the writes of a move, each at the version of the claim that was read first.
func (st *stepper) moveActs(i int, l leader) {
	s := st.from
	was := s.claim
	n := int(l.node)
	switch l.pc {
	case moving:
		st.moveClaim(i, l.node, 2-l.node, actMoveClaim)
		if st.collect {
			st.moveClaim(i, l.node, 0, actGiveUpClaim)
		}
	case collecting:
		s.leader[i] = leader{}
		s.claim = claimState{}
		st.wroteClaim(&s, was)
		st.emit(act{actCollectClaim, 0, uint8(i), 0}, s)
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
		s.claim.from = 0
		st.wroteClaim(&s, was)
		st.emit(act{actClearMovedFrom, l.node, uint8(i), 0}, s)
		if st.collect {
			st.collectClaim(i, was, true)
		}
	}
}
