/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// Two machines under one node name. Either may be cut off from the API while it goes on with what it has mounted, may
// come back, may be powered off for good, and another one may come in its place. In this model they may even act in
// turn: no use is lost where the Lease does not keep them apart. The one that acts is in the fields of nodeState
// itself, the other one is away.

// hostState is one machine and its agent.
type hostState struct {
	up, acked, booted, waits bool
	rec                      record
	hold                     hold
	call                     uint8
	late                     lateWrite
	// off: the machine is powered off for good, and an administrator knows it. The next one in its place is another one.
	off bool
	// severed: its access to the volume is cut.
	severed bool
}

func (n *nodeState) host() hostState {
	return hostState{up: n.up, acked: n.acked, booted: n.booted, waits: n.waits, rec: n.rec, hold: n.hold, call: n.call,
		late: n.late, severed: n.cut.severed}
}

// turn lets the other machine act. What is in use by one is in use by another machine for the other.
func (n *nodeState) turn() {
	h := n.away
	n.away = n.host()
	n.up, n.acked, n.booted, n.waits = h.up, h.acked, h.booted, h.waits
	n.rec, n.hold, n.call, n.late, n.cut.severed = h.rec, h.hold, h.call, h.late, h.severed
	n.cut.held, n.cut.since = h.severed, n.cut.since || h.severed // it reports the addresses of this machine by now
	n.use.foreign = n.use.inUse && (n.use.gone || !n.use.foreign)
}

// machines of the node, each as the one that acts.
func (m *model) machinesOf(n *nodeState) []nodeState {
	if !m.machines {
		return []nodeState{*n}
	}
	other := *n
	other.turn()
	other.cut.held = n.cut.held
	return []nodeState{*n, other}
}

// machineActs: what befalls the other machine of node n.
func (st *stepper) machineActs(n int) {
	h := &st.from.node[n]
	to := func(kind actKind, fault, writes bool, change func(*nodeState)) {
		s := st.from
		change(&s.node[n])
		if writes {
			st.wroteState(&s, n)
		}
		st.out = append(st.out, next{act: act{kind: kind, node: uint8(n)}, state: s, fault: fault})
	}
	if h.away.off {
		to(actPowerOn, true, false, func(n *nodeState) { n.away.off = false })
	} else {
		to(actTurn, false, false, (*nodeState).turn)
		to(actPowerOff, true, false, func(n *nodeState) {
			n.away, n.use.gone = hostState{off: true}, n.use.gone || n.use.foreign
		})
	}
	if h.exists && h.use.gone && !h.isDeclared(h.use.uid) {
		to(actDeclare, false, true, func(n *nodeState) {
			n.declared |= 1 << n.use.uid
			n.excused |= 1 << n.use.uid
		})
	}
	if h.up && h.booted && h.exists && h.use.foreign && st.rules.MayDropForeign(h.view()) == GuardNone {
		to(actDropForeign, false, true, func(n *nodeState) { n.use = useState{} })
	}
}

var (
	machineWorld = world{
		name: "one node, two machines of its name", nodes: 1, leaders: 2, cuts: true, machines: true,
		force: true,
	}
	machineCrashWorld = world{
		name: "one node, two machines of its name, agents that crash", nodes: 1, leaders: 1, cuts: true, machines: true,
		force: true, calls: true, crash: true, reboot: true,
	}
)
