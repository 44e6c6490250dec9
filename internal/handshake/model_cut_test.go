/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// Access that is cut, and given back, at any time: a fence names the addresses of the machine that reports, and what
// that machine writes does not reach the volume while the fence holds. The driver's unpublish cuts nothing itself. What
// is read of the fence and what is written on it are two steps, because no version ties them together.

// fenceOf is the fence on which a detach rests.
type fenceOf uint8

const (
	noFence fenceOf = iota
	// itHolds: the fence has held since it was read.
	itHolds
	// itWasLifted: one that holds by now is another one.
	itWasLifted
)

// cutState is the fence of one node.
type cutState struct {
	// severed: the access of the machine that acts is cut. held: the fence says so of the node.
	severed, held bool
	// since is read by no process: the access of the machine was cut at some time since the state was last written.
	since bool
}

// cutActs: the access of node n is cut or given back.
func (st *stepper) cutActs(n int) {
	h := &st.from.node[n]
	s := st.from
	if !h.cut.severed {
		s.node[n].cut = cutState{severed: true, held: true, since: true}
		st.fault(act{kind: actCut, node: uint8(n)}, s)
		return
	}
	s.node[n].cut.severed, s.node[n].cut.held = false, false
	st.lifted(&s, n)
	st.emit(act{kind: actLift, node: uint8(n)}, s)
}

// lifted: what was forced away is no longer kept from the volume. Unless the delete is on its way, nothing may detach
// it under its user any more; unless the volume is handed over already, no other node may have it.
func (st *stepper) lifted(s *state, n int) {
	h := &s.node[n]
	deletes, hands := h.va.terminating() || h.va.uid != h.entry.uid, false
	for i := range st.nodes {
		hands = hands || i != n && s.node[i].entry.state == entryAttached
	}
	for i := range s.leader {
		l := &s.leader[i]
		hands = hands || int(l.node) != n && l.pc == attached
		if int(l.node) != n {
			continue
		}
		deletes = deletes || l.pc == deleting && l.uid == h.va.uid
		if l.pc == cutting {
			l.reads = 1
		}
	}
	if h.entry.by != itHolds {
		return
	}
	if st.without != effectCutAgain {
		h.entry.by = itWasLifted
	}
	if !deletes && !h.isDeclared(h.entry.uid) {
		h.excused &^= 1 << h.entry.uid
	}
	h.entry.regained = st.exclusive && !hands
}

// severedOrFound: what is left of a forced detach does not reach the volume, or managers can see that it may.
func (n *nodeState) severedOrFound() bool {
	return n.entry.by != noFence && (n.cut.severed || n.liftedNow())
}

// liftedNow is what a live read of the fence shows of the entry.
func (n *nodeState) liftedNow() bool {
	return n.entry.by == itWasLifted || n.entry.by == itHolds && !n.cut.held
}

// seen is the node's state, and what a live read of the fence adds to it.
func (st *stepper) seen(h *nodeState, unless effect) Node {
	v := h.view()
	if st.without != unless && !st.cuts && h.liftedNow() {
		v.Entry.Lifted = true
	}
	return v
}

// mayHandOver: no other node has the volume whose cut was lifted.
func (st *stepper) mayHandOver(n uint8) bool {
	for i := range st.nodes {
		if st.exclusive && i != int(n) && st.rules.CutHolds(st.seen(&st.from.node[i], effectCutConfirm)) != GuardNone {
			return false
		}
	}
	return true
}

// readCut reads the fence after the state.
func (st *stepper) readCut(i, n int, uid uint8) {
	h := &st.from.node[n]
	if !h.cut.held && st.without != effectCutLive || !st.ofThisMachine(h) {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: cutting, node: uint8(n), uid: uid}
	st.emit(act{actReadCut, uint8(n), uint8(i), uid}, s)
}

func (st *stepper) ofThisMachine(h *nodeState) bool {
	return st.without == effectCutMachine || st.rules.MayRelyOnCut(h.view()) == GuardNone
}

// writeCut forces the detach at the version that was read. An attachment that was given back by then is not excused.
func (st *stepper) writeCut(i int, l leader) {
	h := &st.from.node[l.node]
	if st.without == effectCutOrder && (st.rules.MayMarkDetaching(h.view(), uidNames[l.uid], true) != GuardNone ||
		!st.ofThisMachine(h) || h.entry.state == entryDetaching && h.entry.uid == l.uid) {
		return
	}
	s := st.from
	g := &s.node[l.node]
	broken := Invariant("")
	if !g.cut.since {
		broken = I9
	}
	by := itHolds
	if l.reads > 0 {
		by = itWasLifted
	}
	s.leader[i] = leader{}
	g.entry = entry{state: entryDetaching, uid: l.uid, forced: true, by: by}
	if by == itHolds {
		g.excused |= 1 << l.uid
	}
	st.wroteState(&s, int(l.node))
	st.out = append(st.out, next{
		act: act{actWriteCut, l.node, uint8(i), l.uid}, state: s, fault: true, broken: broken,
	})
}

// showLifted writes into the entry that the cut was lifted.
func (st *stepper) showLifted(i, n int) {
	h := &st.from.node[n]
	if st.cuts || h.entry.unprotected || !h.liftedNow() {
		return
	}
	s := st.from
	s.node[n].entry.unprotected = true
	st.wroteState(&s, n)
	st.emit(act{actShowLifted, uint8(n), uint8(i), 0}, s)
}

var (
	cutWorld = world{
		name: "one node, access that is cut and given back", nodes: 1, leaders: 2, severs: true, crash: true, reboot: true,
	}
	cutMachineWorld = world{
		name: "one node, two machines of its name, access that is cut", nodes: 1, leaders: 1, severs: true, machines: true,
	}
	cutExclusiveWorld = world{
		name: "two nodes, exclusive volume, access that is cut", nodes: 2, leaders: 1, severs: true, exclusive: true,
		first: true,
	}
	cutKubeletWorld = world{
		name: "one node, the kubelet publishes, access that is cut", nodes: 1, leaders: 1, severs: true, kubelet: true,
	}
)
