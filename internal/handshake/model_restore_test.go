/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// The restore of an etcd from a backup. The API's objects go back to what they were when the backup was taken, all of
// them together; what is mounted, the agents' records and what the driver has published stay as they are. All API
// servers are stopped for that, so a request that was on its way, or decided on, is lost. There is one backup and one
// restore in each history, for a second restore finds no state that the first could not have left.

// saved is what the API held of one node when the backup was taken.
type saved struct {
	va               attachmentState
	exists, reported bool
	unconfirmed      bool
	entry            entry
	use              useState
	booted           bool
	declared         uint64
	leased           bool
	intent           intentPhase
	excuse           excuse
	said             assertState
}

// excuse from a restore, which names the restore that it was written for.
type excuse uint8

const (
	noExcuse excuse = iota
	excuseOfAnEarlierRestore
	excuseOfThisRestore
)

// backup of the whole API.
type backup struct {
	taken bool
	node  [2]saved
	lock  lockState
}

// lost connection, of an agent and of a manager's Lease watch: what a restore leaves behind in processes that go on.
type restoredState struct {
	backup backup
	// done: the API was restored; reported: an agent, of this or another node, has said so.
	done, reported bool
}

// restoreActs: the backup, the restore, and what agents and managers do to find back to each other.
func (st *stepper) restoreActs() {
	st.takeBackup()
	st.restoreBackup()
	if r := st.from.restored; st.agentless && r.done && !r.reported {
		s := st.from
		s.restored.reported = true
		st.emit(act{kind: actReportRestore}, s)
	}
	if st.lags && st.from.restored.done && (st.from.node[0].behind || st.from.node[1].behind) {
		s := st.from
		for n := range s.node {
			s.node[n].behind, s.node[n].pastUse = false, false
		}
		st.emit(act{kind: actCatchUp}, s)
	}
	for n := range st.nodes {
		st.hear(n)
		st.confirm(n)
		st.excuse(n)
	}
}

// excuse: an administrator who knows that the first node uses nothing has a restore that an agent reports not wait for
// it.
func (st *stepper) excuse(n int) {
	h := &st.from.node[n]
	reported := false
	for i := range st.nodes {
		reported = reported || !st.from.node[i].unheard && st.from.node[i].unconfirmed
	}
	if !st.excuses || n > 0 || !reported || !h.unheard || h.excuse == excuseOfThisRestore || h.hold.kind != holdNone ||
		h.rec.uid != 0 {
		return
	}
	s := st.from
	s.node[n].excuse = excuseOfThisRestore
	st.fault(act{kind: actExcuse, node: uint8(n)}, s)
}

// excused from the restore: an excuse that the backup contains does not count, and a taint may be of the backup.
func (st *stepper) excused(n int) bool {
	h := &st.from.node[n]
	return h.excuse == excuseOfThisRestore || st.without == effectExcuseOfThis &&
		(h.excuse == excuseOfAnEarlierRestore || h.assertion() == Assertion{Recorded: true})
}

// mayBePast: what the API shows of the node may be of the backup. That no agent may have reported the restore yet is
// not modelled.
func (st *stepper) mayBePast(n int) bool {
	return st.from.node[n].unheard && !st.excused(n)
}

// takeBackup, but not of an attachment that is being deleted: the external-attacher goes on with it as soon as it
// sees it again, whatever uses the volume by then. Nor of one that is being forced away. With two nodes only while no
// attachment is half way, no lock is being moved, and nothing of the volume is on the second node.
func (st *stepper) takeBackup() {
	if st.from.restored.done || st.from.restored.backup.taken {
		return
	}
	s := st.from
	b := &s.restored.backup
	b.taken, b.lock = true, s.lock
	for n := range st.nodes {
		h := &s.node[n]
		// Later ones are those of the other worlds with a restore.
		if st.agentless && h.leased {
			return
		}
		if h.va.terminating() || h.entry.forced {
			return
		}
		// Where there are taints too, of a node that has the volume, is out of reach and has a taint that counts.
		counts := h.said.silent && h.assertion() == Assertion{Recorded: true}
		if st.asserts && st.nodes == 1 && (!counts || h.entry.state != entryAttached) {
			return
		}
		if st.nodes > 1 && (h.va.phase == vaNew || h.va.phase == vaPublished || s.lock.from != 0) {
			return
		}
		if n > 0 && (h.va.phase != vaNone || h.entry.state != noEntry || h.use.inUse) {
			return
		}
		b.node[n] = saved{
			va: h.va, exists: h.exists, reported: h.reported, unconfirmed: h.unconfirmed, entry: h.entry, use: h.use,
			booted: h.booted, declared: h.declared, leased: h.leased, intent: h.intent.phase, said: h.said,
		}
	}
	if st.excuses {
		b.node[0].excuse = excuseOfAnEarlierRestore
	}
	st.fault(act{kind: actBackup}, s)
}

func (st *stepper) restoreBackup() {
	b := st.from.restored.backup
	if !b.taken {
		return
	}
	s := st.from
	s.restored = restoredState{done: true}
	s.lock, s.leader = b.lock, [2]leader{}
	for n := range st.nodes {
		h, was := &s.node[n], b.node[n]
		h.va, h.exists, h.reported, h.unconfirmed = was.va, was.exists, was.reported, was.unconfirmed
		h.entry, h.use, h.booted, h.declared = was.entry, was.use, was.booted, was.declared
		h.late, h.leased, h.excuse, h.said = lateWrite{}, was.leased, was.excuse, was.said
		h.intent.lost = h.intent.lost || was.intent == intentAbsent && h.intent.phase != intentAbsent
		h.intent.phase, h.intent.acknowledged = was.intent, false
		h.behind = st.lags
		h.pastUse = st.lags && h.view().InUse() && !h.entry.forced
		h.unheard = st.without != effectListensAgain
		if st.without != effectSession {
			h.acked, h.between = false, true
		}
	}
	st.fault(act{kind: actRestore}, s)
}

// hear: the manager sees the agent's Lease being renewed.
func (st *stepper) hear(n int) {
	h := &st.from.node[n]
	renews := h.up && !h.between && h.reported
	if !h.unheard || !renews && st.without != effectHeardLive {
		return
	}
	s := st.from
	s.node[n].unheard = false
	st.emit(act{kind: actHear, node: uint8(n)}, s)
}

// confirm the session of node n's agent.
func (st *stepper) confirm(n int) {
	h := &st.from.node[n]
	everybody := true
	for i := range st.nodes {
		everybody = everybody && (!st.from.node[i].unheard || st.excused(i))
	}
	elsewhere := st.usedElsewhere(n) && st.exclusive && h.entry.state == entryAttached
	if !h.exists || !h.unconfirmed || st.rules.MayConfirm(h.view(), everybody, elsewhere) != GuardNone {
		return
	}
	s := st.from
	s.node[n].unconfirmed = false
	st.wroteState(&s, n)
	st.emit(act{kind: actConfirm, node: uint8(n)}, s)
}

// usedElsewhere: another node than n uses the volume, and it was not forced away from there.
func (st *stepper) usedElsewhere(n int) bool {
	for i := range st.nodes {
		if v := st.from.node[i].view(); i != n && v.InUse() && !v.Entry.Forced {
			return true
		}
	}
	return false
}

// beginSession: the agent reports all that it has, under a number that no manager has confirmed.
func (st *stepper) beginSession(n int) {
	s := st.from
	h := &s.node[n]
	h.between = false
	if st.without == effectSessionWrites {
		st.emit(act{kind: actBeginSession, node: uint8(n)}, s)
		return
	}
	st.wroteState(&s, n)
	h.reported, h.booted, h.said.silent = true, true, false
	if h.said.recorded {
		h.said.contradicted = h.said.contradicted || st.without != effectSessionVoids
		h.said.void = h.said.taint
	}
	if b := &s.restored.backup.node[n]; b.said.recorded { // void it is also after a restore
		b.said.void = b.said.taint
	}
	h.unconfirmed = st.restore && (st.without != effectNewNumber || h.unconfirmed)
	h.use = h.restated(st.without)
	// What only the API says is in use was not taken by this agent: it counts, but it may not be gone on with.
	h.acked = h.rec.uid != 0 || h.hold.kind != holdNone
	st.emit(act{kind: actBeginSession, node: uint8(n)}, s)
}

// restated is what the agent itself knows of its use.
func (n *nodeState) restated(without effect) useState {
	switch {
	case without == effectRestates:
		return n.use
	case n.rec.uid != 0 && (!n.rec.released || n.rec.pending):
		return useState{uid: n.rec.uid, inUse: true}
	case n.hold.kind == holdMounted:
		return useState{uid: n.hold.uid, inUse: true}
	}
	return n.use // what only the API says counts until it is known to be undone
}

// restoredBroken is what has to hold after a restore, where the API no longer shows what is attached: a volume that
// is staged is on one node at most. That no driver is asked to unpublish under a mount is checked with each step.
func (m *model) restoredBroken(s *state) Invariant {
	staged := 0
	for i := range m.nodes {
		if s.node[i].hold.kind != holdNone {
			staged++
		}
	}
	if m.exclusive && staged > 1 {
		return I3
	}
	return ""
}

func (b *backup) rename(n int, uids *naming) {
	w := &b.node[n]
	for _, u := range [...]*uint8{&w.va.uid, &w.entry.uid, &w.use.uid} {
		uids.rename(u)
	}
	uids.renameSet(&w.declared)
}

// The worlds with a restore.
var (
	restoreWorld = world{
		name: "one node, the API is restored from a backup", nodes: 1, leaders: 2, cuts: true, restore: true,
		crash: true, calls: true,
	}
	agentlessRestoreWorld = world{
		name: "one node without an agent, an intent, the API is restored", nodes: 1, leaders: 1, cuts: true,
		restore: true, intents: true, agentless: true,
	}
	restoreExclusiveWorld = world{
		name: "two nodes, exclusive volume, the API is restored from a backup", nodes: 2, leaders: 1, cuts: true,
		exclusive: true, restore: true,
	}
	restoreExcusedWorld = world{
		name: "two nodes, exclusive volume, a restore that does not wait for one", nodes: 2, leaders: 1, cuts: true,
		exclusive: true, restore: true, excuses: true,
	}
	restoreAssertWorld = world{
		name: "one node, taints and silences, the API is restored", nodes: 1, leaders: 1, cuts: true, restore: true,
		asserts: true,
	}
)
