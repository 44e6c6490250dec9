/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// The kubelet as publisher. Its memory is lost when it is restarted; then it drops volumes from volumesInUse that
// are still mounted. Before a call it writes a record of its own (vol_data.json), which the agent
// reads together with the mount table.

func (st *stepper) kubeletActs(n int) {
	h := &st.from.node[n]
	if h.dead {
		return
	}
	k := h.kubelet
	with := func(kind actKind, nodeWritten bool, change func(*nodeState)) {
		s := st.from
		change(&s.node[n])
		if nodeWritten {
			st.wroteNode(&s)
		}
		st.emit(act{kind: kind, node: uint8(n)}, s)
	}
	if st.unregisters {
		st.registration(n)
	}
	if !k.inUse && !k.missing {
		with(actKubeletInUse, true, func(h *nodeState) { h.kubelet.inUse, h.kubelet.named = true, h.kubelet.boot })
	}
	if k.named != k.boot {
		with(actKubeletNames, true, func(h *nodeState) { h.kubelet.named = h.kubelet.boot })
	}
	// What the kubelet may have used in this boot is not let go for a pod that waits: people have to delete that pod.
	if k.waits && h.entry.forced && (h.entry.boot == k.boot || h.rec.pending) {
		with(actPodDeleted, false, func(h *nodeState) { h.kubelet.waits = false })
	}
	if k.inUse && k.verified == 0 && h.call == 0 && h.hold.kind == holdNone && !k.trusts && !k.waits {
		// Dropped after a restart although it is mounted, or because nothing is.
		with(actKubeletForgets, true, func(h *nodeState) { h.kubelet.inUse, h.kubelet.named = false, h.kubelet.boot })
	}
	// It says that it uses the volume before it asks the Node, and with that names its boot.
	asks := k.inUse && k.listed && k.named == k.boot
	if (asks || k.trusts && h.hold.kind == holdNone) && k.verified == 0 && h.call == 0 && h.va.phase == vaAttached {
		with(actKubeletVerifies, false, func(h *nodeState) { h.kubelet.verified = h.va.uid })
	}
	if k.verified != 0 && h.call == 0 && h.hold.kind == holdNone {
		with(actKubeletCalls, false, st.kubeletCalls)
	}
	if h.call != 0 {
		with(actCallMounts, false, func(h *nodeState) {
			cut := st.reboot && h.isExcused(h.call) && !(h.va.uid == h.call && h.va.published())
			h.hold, h.call = hold{kind: holdMounted, uid: h.call, cut: cut}, 0
		})
		with(actCallFails, false, func(h *nodeState) { h.call = 0 })
	}
	if h.call == 0 && (h.hold.kind != holdNone || h.rec.uid != 0 && !k.waits) {
		with(actKubeletUnmounts, false, func(h *nodeState) {
			h.hold, h.rec, h.kubelet.verified, h.kubelet.trusts, h.kubelet.waits = hold{}, record{}, 0, false, false
			h.kubelet.shown, h.kubelet.asSeen = 0, false
		})
	}
	if !k.missing && (k.verified != 0 || k.inUse && (h.hold.kind != holdNone || h.call != 0)) {
		s := st.from
		s.node[n].kubelet.verified = 0
		s.node[n].kubelet.trusts = st.reboot && h.rec.uid != 0
		if h.hold.kind != holdNone || h.call != 0 {
			s.node[n].kubelet.inUse = false
		}
		st.wroteNode(&s)
		st.fault(act{kind: actKubeletRestarts, node: uint8(n)}, s)
	}
}

// registration: the Node is deleted, with all that it lists, under a kubelet that goes on; a kubelet that is
// restarted registers anew.
func (st *stepper) registration(n int) {
	s := st.from
	k := &s.node[n].kubelet
	if k.missing {
		*k = kubeletState{looking: k.looking, saw: k.saw, shown: k.shown, asSeen: k.asSeen}
		st.wroteNode(&s)
		st.emit(act{kind: actNodeRegistered, node: uint8(n)}, s)
		return
	}
	k.missing, k.inUse, k.listed = true, false, false
	st.wroteNode(&s)
	st.fault(act{kind: actNodeDeleted, node: uint8(n)}, s)
}

// kubeletCalls: the record is written, and so touched, before the call. A call that begins when its attachment is
// gone meets what is there then.
func (st *stepper) kubeletCalls(h *nodeState) {
	uid := h.kubelet.verified
	if st.without != effectRecorded {
		h.kubelet.shown, h.kubelet.asSeen = 0, false
	}
	if st.reboot && uid != h.va.uid {
		uid = h.va.uid
	}
	if uid == 0 || st.reboot && !h.va.published() {
		h.rec = record{uid: h.kubelet.verified, pending: true}
		return
	}
	h.rec, h.call = record{uid: uid, pending: st.reboot}, uid
}

// rebootUnderKubelet: what was mounted is gone and what was running has ended; the kubelet's records are there. A pod
// may be bound to the node already.
func (st *stepper) rebootUnderKubelet(n int) {
	for _, waits := range [...]bool{false, true} {
		s := st.from
		h := &s.node[n]
		h.hold, h.call, h.rec.pending = hold{}, 0, false
		k := &h.kubelet
		k.verified, k.looking, k.saw, k.quiet = 0, false, false, false
		if st.without != effectRecorded {
			k.shown, k.asSeen = 0, false
		}
		k.boot, k.trusts, k.waits = st.freshBoot, h.rec.uid != 0, waits
		st.out = append(st.out, next{act: act{actReboot, uint8(n), 0, detail(waits)}, state: s, fault: true})
	}
}

func detail(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// observerActs: the agent reads the state, checks the host and then reports at the version that it read.
func (st *stepper) observerActs(n int) {
	h := &st.from.node[n]
	if !h.exists || h.dead {
		return
	}
	st.shutDown(n)
	sees := h.hold.kind != holdNone || h.rec.uid != 0
	if !h.kubelet.looking {
		s := st.from
		s.node[n].kubelet.looking, s.node[n].kubelet.saw = true, sees
		s.node[n].kubelet.asSeen = h.hold.kind != holdNone
		s.node[n].kubelet.quiet = st.reboot && h.hold.kind == holdNone && (!h.rec.pending || st.without == effectTouched)
		st.emit(act{kind: actLook, node: uint8(n)}, s)
		return
	}
	s := st.from
	saw, quiet := h.kubelet.saw, h.kubelet.quiet
	st.wroteState(&s, n)
	g := &s.node[n]
	g.reported, g.acked, g.entry.looked, g.entry.relooked = true, true, g.entry.unlisted, g.entry.asked
	g.kubelet.looking, g.kubelet.saw, g.kubelet.quiet = false, false, false
	g.kubelet.said = g.kubelet.boot
	// The UID is that of the entry which was Attached when the volume was first seen under one, and stays while it is
	// seen.
	if g.kubelet.asSeen && h.entry.state == entryAttached {
		g.kubelet.shown = h.entry.uid
	}
	g.kubelet.asSeen = false
	g.use.inUse = saw
	g.use.waiting = saw && quiet && st.rules.MayCountAsWaiting(h.view(), bootNames[h.kubelet.boot]) == GuardNone
	switch {
	case !saw:
		g.use.uid = 0
	case g.use.waiting:
		g.use.uid = 0
	case g.use.uid == 0 && h.entry.state == entryAttached:
		g.use.uid = h.entry.uid
	}
	st.emit(act{kind: actReportLook, node: uint8(n)}, s)
}

// shutDown stops the filesystem that the kubelet has mounted on an attachment that was forced away or declared. The
// agent may have learnt of that long ago: what it knows of the entry does not matter, for that is final. It opens the
// mount and then reads the kubelet's record.
func (st *stepper) shutDown(n int) {
	h := &st.from.node[n]
	if h.hold.kind != holdMounted || !h.isExcused(h.kubelet.shown) {
		return
	}
	var broken Invariant
	if h.hold.uid != h.kubelet.shown && !h.isExcused(h.hold.uid) {
		broken = I8
	}
	st.out = append(st.out, next{act: act{kind: actShutDown, node: uint8(n)}, state: st.from, broken: broken})
}

func (st *stepper) lists(k kubeletState) KubeletLists {
	return KubeletLists{Attached: k.listed, InUse: k.inUse, Missing: k.missing && st.without != effectMissing}
}

// beginListing reads the Node; its version is what the list is written at.
func (st *stepper) beginListing(i, n int) {
	if k := st.from.node[n].kubelet; k.listed || k.missing {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: listing, node: uint8(n)}
	st.emit(act{actReadNode, uint8(n), uint8(i), 0}, s)
}

// unlist: the entry is Detaching, then the Node is read and written.
func (st *stepper) unlist(i, n int) {
	h := &st.from.node[n]
	st.unlistLate(i, n)
	if st.rules.MayUnlistAttached(h.view(), st.lists(h.kubelet)) != GuardNone {
		return
	}
	s := st.from
	s.leader[i] = leader{pc: unlisted, node: uint8(n), uid: h.entry.uid}
	s.leader[i].boot = h.kubelet.named
	if h.entry.forced && st.rules.MayNoteUnlisted(st.lists(h.kubelet)) != GuardNone {
		s.leader[i].pc = unlistedInUse
	}
	if !h.entry.forced || h.entry.boot != 0 {
		s.leader[i].boot = 0
	}
	if s.leader[i].pc == unlistedInUse && s.leader[i].boot == 0 {
		s.leader[i].pc = awaiting
	}
	if st.without == effectUnlist {
		st.emit(act{actReadState, uint8(n), uint8(i), 0}, s)
		return
	}
	s.node[n].kubelet.listed = false
	if h.kubelet.listed || st.without != effectUnlistChanges && !h.kubelet.missing {
		st.wroteNode(&s)
	}
	st.emit(act{actUnlist, uint8(n), uint8(i), 0}, s)
}

// unlistLate: the leader knows the state of the node from a copy that says Detaching of an attachment of which
// nothing is left. It reads the Node and takes the next attachment off its list; what it would write down then is
// refused.
func (st *stepper) unlistLate(i, n int) {
	h := &st.from.node[n]
	if h.entry.state == entryDetaching || h.kubelet.missing || h.kubelet.inUse || !h.kubelet.listed {
		return
	}
	s := st.from
	s.leader[i] = leader{}
	s.node[n].kubelet.listed = false
	st.wroteNode(&s)
	st.emit(act{actUnlist, uint8(n), uint8(i), 0}, s)
}

// ask for another check, now that the attachment is gone.
func (st *stepper) ask(i, n int) {
	h := &st.from.node[n]
	if h.entry.asked || st.without == effectAskAgain || st.rules.MayAskAgain(h.view()) != GuardNone {
		return
	}
	s := st.from
	s.node[n].entry.asked = true
	st.wroteState(&s, n)
	st.emit(act{actAskAgain, uint8(n), uint8(i), 0}, s)
}

func (st *stepper) listActs(i int, l leader) {
	h := &st.from.node[l.node]
	s := st.from
	switch l.pc {
	case listing:
		if st.rules.MayListAttached(h.view()) == GuardNone {
			s.leader[i].pc = list
			st.emit(act{actReadStateForList, l.node, uint8(i), 0}, s)
		}
	case list:
		s.leader[i] = leader{}
		s.node[l.node].kubelet.listed = true
		st.wroteNode(&s)
		st.emit(act{actList, l.node, uint8(i), 0}, s)
	case unlisted, unlistedInUse:
		s.leader[i].pc, s.leader[i].boot = awaiting, 0
		if e := &s.node[l.node].entry; e.state == entryDetaching && e.uid == l.uid &&
			(!e.unlisted || e.boot == 0 && l.boot != 0) {
			if l.pc == unlisted && !e.unlisted {
				e.unlisted, e.looked = true, st.without == effectLookAgain
			}
			if e.forced && e.boot == 0 {
				e.boot = l.boot
			}
			st.wroteState(&s, int(l.node))
		}
		st.emit(act{actFence, l.node, uint8(i), 0}, s)
	case awaiting:
		if l.uid != h.va.uid || h.va.terminating() {
			return
		}
		if st.rules.MayDeleteUnderKubelet(st.seen(h, effectCutDelete), h.va.view()) == GuardNone {
			s.leader[i].pc = deleting
			st.emit(act{actDecideDelete, l.node, uint8(i), 0}, s)
		}
	}
}
