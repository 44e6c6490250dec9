/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// What is asserted of a node, rightly or wrongly: its Node carries the out-of-service taint, or it was out of reach for
// long enough. A taint comes and goes at any time, whether the agent lives or not. An agent may also be cut off from
// the API and go on with what it has mounted. A Node that was seen to go out of reach is such a taint once it is
// recorded. That its deletion ends the agent is not modelled: of an agent that was heard nothing is recorded.

// assertState is what the API holds of that for one node, and what the invariant remembers.
type assertState struct {
	// taint: the Node carries it. recorded: the node state has a record of it. contradicted: the agent's Lease shows
	// another renewal than the record, or the state another session.
	taint, recorded, contradicted bool
	// silent: the node state is marked as that of an agent that is unreachable.
	silent bool
	// void is read by no process: the agent was heard since the present taint was first seen.
	void bool
}

// inSession: the agent is heard.
func (n *nodeState) inSession() bool { return n.up && !n.between && !n.dead }

func (n *nodeState) assertion() Assertion {
	return Assertion{Recorded: n.said.taint && n.said.recorded, Contradicted: n.said.contradicted}
}

// assertActs: whatever befalls the taint, the agent's Lease and the marks of node n.
func (st *stepper) assertActs(n int) {
	h := &st.from.node[n]
	to := func(kind actKind, fault, writes bool, change func(*nodeState)) {
		s := st.from
		change(&s.node[n])
		if writes {
			st.wroteState(&s, n)
		}
		st.out = append(st.out, next{act: act{kind: kind, node: uint8(n)}, state: s, fault: fault})
	}
	said := h.said
	if !said.taint {
		to(actTaint, !h.dead, false, func(n *nodeState) { n.said.taint = true })
	} else {
		to(actUntaint, false, false, func(n *nodeState) { n.said.taint, n.said.void = false, false })
	}
	if h.exists && said.taint != said.recorded {
		to(actRecordTaint, false, true, func(n *nodeState) { n.said.recorded, n.said.contradicted = said.taint, false })
	}
	if said.recorded && st.without == effectRecordKept {
		to(actForgetTaint, true, false, func(n *nodeState) { n.said.recorded, n.said.contradicted = false, false })
	}
	if h.inSession() && h.reported {
		if said.recorded && !said.contradicted {
			to(actRenew, false, false, func(n *nodeState) { n.said.contradicted, n.said.void = true, n.said.taint })
		}
		to(actCutOff, true, false, func(n *nodeState) { n.between, n.acked = true, false })
	}
	if h.exists && !said.silent && !h.inSession() {
		to(actMarkSilent, true, true, func(n *nodeState) { n.said.silent = true })
	}
}

// relyOn forces the detach on what is asserted. What is read live after the state is read in one step with it: whatever
// came between would have to begin with a write of the state.
func (st *stepper) relyOn(i, n int, uid uint8) {
	h := &st.from.node[n]
	if st.mayBePast(n) && st.without != effectEvidenceOfNow {
		return
	}
	if st.rules.MayRelyOn(h.view(), Lapsed) == GuardNone {
		st.forceAway(i, n, uid, actWriteLapsed)
	}
	if st.without == effectOrderLease {
		if h.assertion() == (Assertion{Recorded: true}) {
			s := st.from
			s.leader[i] = leader{pc: relying, node: uint8(n), uid: uid}
			st.emit(act{actReadTaint, uint8(n), uint8(i), uid}, s)
		}
		return
	}
	if st.rules.MayRelyOn(h.view(), h.assertion()) == GuardNone {
		st.forceAway(i, n, uid, actWriteTainted)
	}
}

// rely reads the node's state only after the Lease, and writes at its version.
func (st *stepper) rely(i int, l leader) {
	h := &st.from.node[l.node]
	if h.said.silent && h.exists && st.rules.MayMarkDetaching(h.view(), uidNames[l.uid], true) == GuardNone {
		st.forceAway(i, int(l.node), l.uid, actWriteTainted)
	}
}

// forceAway breaks the invariant itself where the agent was heard: the detach is not excused then.
func (st *stepper) forceAway(i, n int, uid uint8, kind actKind) {
	s := st.from
	h := &s.node[n]
	broken := Invariant("")
	if h.inSession() || kind == actWriteTainted && h.said.void {
		broken = I9
	}
	s.leader[i] = leader{}
	h.entry = entry{state: entryDetaching, uid: uid, forced: true, unprotected: !st.cuts}
	h.excused |= 1 << uid
	st.wroteState(&s, n)
	st.out = append(st.out, next{act: act{kind, uint8(n), uint8(i), uid}, state: s, fault: true, broken: broken})
}

var (
	assertWorld = world{
		name: "one node, taints and silences, also wrong ones", nodes: 1, leaders: 2, cuts: true, asserts: true,
		calls: true, crash: true, reboot: true,
	}
	assertExclusiveWorld = world{
		name: "two nodes, taints and silences, exclusive volume", nodes: 2, leaders: 1, cuts: true, asserts: true,
		exclusive: true, first: true,
	}
)
