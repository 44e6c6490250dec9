/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// One intent and its publication on the node. Other intents of the volume are what makes the
// agent stage and unstage as it likes.

func (st *stepper) intentActs(n int) {
	i := st.from.node[n].intent
	with := func(kind actKind, detail uint8, change func(*nodeState)) {
		s := st.from
		change(&s.node[n])
		st.emit(act{kind: kind, node: uint8(n), detail: detail}, s)
	}
	switch i.phase {
	case intentAbsent:
		// A new intent of that name adopts a publication that was left behind; the old object's story is over.
		with(actIntentCreated, 0, func(h *nodeState) {
			h.intent.phase, h.intent.lost, h.intent.acknowledged = intentLive, false, false
		})
	case intentLive:
		with(actIntentDeleted, 0, func(h *nodeState) { h.intent.phase = intentDeleting })
	}
	if i.phase != intentAbsent && st.lost {
		s := st.from
		s.node[n].intent.phase, s.node[n].intent.lost = intentAbsent, true
		st.intentGone(&s, n)
		st.fault(act{kind: actIntentLost, node: uint8(n)}, s)
	}
	st.publishActs(n, with)
}

// publishActs: the agent's side.
func (st *stepper) publishActs(n int, with func(actKind, uint8, func(*nodeState))) {
	h := &st.from.node[n]
	i := h.intent
	if i.cached != i.phase {
		with(actIntentSeen, 0, func(h *nodeState) { h.intent.cached = i.phase })
	}
	if !h.up {
		return
	}
	seen := i.view()
	if st.without == effectIntentLive {
		seen = intentState{phase: i.cached}.view()
	}
	switch {
	case i.published:
		// Absence is not a command: only a deletion that was seen ends a publication.
		if i.cached == intentDeleting {
			with(actUnpublishIntent, 0, func(h *nodeState) { h.intent.published = false })
		}
	case i.cleared:
		with(actPublishIntent, 0, func(h *nodeState) { h.intent.published, h.intent.cleared = true, false })
		with(actGiveUpPublish, 0, func(h *nodeState) { h.intent.cleared = false })
	case h.hold.kind == holdMounted && h.acked && i.cached == intentLive:
		if st.rules.MayPublish(h.view(), uidNames[h.hold.uid], seen) == GuardNone {
			with(actReadIntent, 0, func(h *nodeState) { h.intent.cleared = true })
		}
	}
	if i.phase == intentDeleting && i.cached == intentDeleting && !i.published && !i.cleared && !i.acknowledged {
		with(actAcknowledge, 0, func(h *nodeState) { h.intent.acknowledged = true })
	}
}

// decideRelease: the leader reads the intent, which is being deleted, and then the node's state.
func (st *stepper) decideRelease(l, n int) {
	h := &st.from.node[n]
	if h.intent.phase != intentDeleting {
		return
	}
	if st.rules.MayReleaseIntent(h.view(), h.intent.acknowledged, h.entry.forced) != GuardNone {
		return
	}
	s := st.from
	s.leader[l] = leader{pc: releasing, node: uint8(n)}
	st.emit(act{actDecideRelease, uint8(n), uint8(l), 0}, s)
}

// decideReleaseUnheard: the leader reads the state of a node whose agent it does not hear.
func (st *stepper) decideReleaseUnheard(l, n int) {
	h := &st.from.node[n]
	if !st.agentless || h.intent.phase != intentDeleting ||
		st.rules.MayReleaseUnheard(h.view(), false, false) != GuardNone {
		return
	}
	s := st.from
	s.leader[l] = leader{pc: unheard, node: uint8(n)}
	st.emit(act{actReadUnheard, uint8(n), uint8(l), 0}, s)
}

// releaseUnheard: it reads the agent's Lease, and writes at the version of the state that it has read. After a restore
// only what the agent has reported since, or any agent before the Lease was read, can be known.
func (st *stepper) releaseUnheard(i int, l leader) {
	s := st.from
	h := &s.node[l.node]
	var broken Invariant
	if l.pc == unheard {
		if st.rules.MayReleaseUnheard(h.view(), h.leased, s.restored.reported) != GuardNone {
			return
		}
		if h.intent.published && s.restored.reported {
			broken = I6
		}
		s.leader[i].pc = releasingUnheard
		st.out = append(st.out, next{act: act{actReadLease, l.node, uint8(i), 0}, state: s, broken: broken})
		return
	}
	if h.intent.published && h.reported && !h.between {
		broken = I6
	}
	st.wroteState(&s, int(l.node))
	s.leader[i] = leader{pc: releasing, node: l.node}
	st.out = append(st.out, next{act: act{actWriteUnheard, l.node, uint8(i), 0}, state: s, broken: broken})
}

// intentGone ends what waits to be written to that object: its version, and its UID, never come back.
func (st *stepper) intentGone(s *state, n int) {
	for i := range s.leader {
		switch s.leader[i].pc {
		case releasing, unheard, releasingUnheard:
		default:
			continue
		}
		if int(s.leader[i].node) == n {
			s.leader[i] = leader{}
		}
	}
}
