/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// Invariant names what has to hold; the empty one is none.
type Invariant string

const (
	// I1: what is staged is attached there under its UID, but on evidence.
	I1 Invariant = "I1 staged only while attached"
	// I2: the driver's unpublish is called only for what is not in use there, but on evidence.
	I2 Invariant = "I2 no unpublish while in use"
	// I3: an exclusive volume is usable on one node at most.
	I3 Invariant = "I3 exclusive on one node"
	// I4: from every state, without a further fault everything can be released, and the volume used anywhere.
	I4 Invariant = "I4 released is detached in the end"
	// I5: after a forced detach nothing of the old mount reaches the volume, or it was said that it may: as
	// unprotected, or by an administrator that declared the attachment released.
	I5 Invariant = "I5 nothing after a forced detach"
	// I6: there is no publication for an intent that we let go.
	I6 Invariant = "I6 no publication without its intent"
	// I9: the report of an agent that is heard is overruled by nothing but a declaration that names the attachment, or
	// evidence that this machine's access was cut since that report; and a taint that such an agent has contradicted
	// counts no more.
	I9 Invariant = "I9 a live agent is not overruled"
	// I8: an attachment does not become usable on a node where an earlier one is still mounted, and no act for an
	// earlier one hits what is mounted on a later one.
	I8 Invariant = "I8 a later life is not harmed"
)

// broken names the first invariant that does not hold in s.
func (m *model) broken(s *state) Invariant {
	if s.restored.done {
		return m.restoredBroken(s)
	}
	usable := 0
	for i := range m.nodes {
		for _, n := range m.machinesOf(&s.node[i]) {
			if n.hold.kind == holdNone {
				continue
			}
			// Without its attachment a volume that a stranger detached may still be reached, where the driver cuts nothing.
			// So may what was forced away once its access is given back.
			if n.usable() || n.entry.regained && n.hold.cut || m.stranger && !m.cuts && !n.entry.forced {
				usable++
			}
			if b := m.holdBreaks(&n); b != "" {
				return b
			}
		}
	}
	if m.exclusive && usable > 1 {
		return I3
	}
	return ""
}

// holdBreaks is asked of a machine that has something of the volume.
func (m *model) holdBreaks(n *nodeState) Invariant {
	if n.entry.state == entryAttached && n.entry.uid != n.hold.uid {
		return I8
	}
	excused := n.isExcused(n.hold.uid)
	if !excused && !n.usable() {
		return I1
	}
	if b := m.reaches(n); b != "" {
		return b
	}
	if n.intent.published && n.intent.phase == intentAbsent && !n.intent.lost && !excused {
		return I6
	}
	return ""
}

// reaches: a mount that has outlived its unpublish. Where the driver cuts the node's access it must not be opened
// again while that mount is there; where it does not, the entry must say so.
func (m *model) reaches(n *nodeState) Invariant {
	if !n.hold.cut || m.stranger || n.isDeclared(n.hold.uid) {
		return ""
	}
	if m.cuts && n.va.published() {
		return I5
	}
	if !m.cuts && !n.entry.unprotected && !n.severedOrFound() {
		return I5
	}
	return ""
}

// unpublishBreaks is asked just before the driver's unpublish.
func (st *stepper) unpublishBreaks(n *nodeState) Invariant {
	if st.stranger && n.isExcused(n.va.uid) {
		return ""
	}
	for _, h := range [...]hostState{n.host(), n.away} {
		held := h.hold.kind != holdNone && !n.isExcused(h.hold.uid)
		called := h.call != 0 && !n.isExcused(h.call)
		if held || called {
			return I2
		}
	}
	return ""
}

// clean: nothing is left of any use, on any node; an exclusive volume's lock stays with its last holder, and the state
// of a machine that is dead goes on saying what was declared to be over.
func (m *model) clean(s *state) bool {
	for i := range m.nodes {
		n := &s.node[i]
		if n.va.phase != vaNone || !n.forgotten() || n.view().InUse() || n.use.inUse && !n.dead || n.hold.kind != holdNone ||
			n.call != 0 || n.late.kind != noWrite && !n.dead {
			return false
		}
		if h := n.away; h.hold.kind != holdNone || h.call != 0 {
			return false
		}
		if n.intent.phase != intentAbsent || n.intent.published || n.kubelet.inUse && !n.dead || n.kubelet.listed {
			return false
		}
	}
	return s.lock.from == 0
}

// forgotten: there is no entry, or one that alone remembers what was declared of a machine that is dead.
func (n *nodeState) forgotten() bool {
	return n.entry.state == noEntry || n.dead && n.view().DeclaredAway()
}

// used: the volume can be used on node i, with the full knowledge of everyone; a machine that is dead need not be
// waited for.
func (m *model) used(s *state, i int) bool {
	n := &s.node[i]
	return n.dead || n.usable() && n.entry.state == entryAttached && n.entry.uid == n.hold.uid &&
		(!m.intents || n.intent.published)
}
