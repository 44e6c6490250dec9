/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// A restored API server is another history: each object in it is consistent with the others, and older than what the
// nodes did. Nothing in the API shows that. It is found out like this:
//
//   - An agent works in sessions. A session ends with the process, with the connection to the API server, and
//     with a Lease that is not renewed. All API servers are stopped for a restore, so no session outlives one.
//   - A session begins with a report of everything that the node uses, whatever the API says. Its number is higher than
//     every number in the API, so no manager can have confirmed it before.
//   - The agent renews its Lease only within a session. A manager counts a report only if it has seen that Lease being
//     renewed since it began to listen: a restored Lease is there, but no process renews it.
//   - The agent takes nothing into use before the manager has confirmed the session, and the manager confirms none
//     before it has heard every agent.

// MayBringIn reports whether an exclusive volume may be written Attached for a node. elsewhere: it is in use on
// another node, and was not forced away from there. Without a restore the lock says all of that. After one it may be
// of the past, and an agent uses a volume that has no entry in the API. It is asked before each write of Attached, at
// the version that is written upon: the manager that confirmed that version had heard every agent, and what an agent
// uses without an entry it used before. Where elsewhere is read from a cache, that contains the confirmation.
func (p Protocol) MayBringIn(exclusive, elsewhere bool) Guard {
	return p.refuse(GuardUsedElsewhere, !exclusive || !elsewhere)
}

// MayConfirm reports whether the manager may confirm an agent's session, at the version of the node's state that it
// decided on. everybody: it has heard every agent that may use a volume. elsewhere: an exclusive volume that is
// Attached on this node is in use on another one.
func (p Protocol) MayConfirm(n Node, everybody, elsewhere bool) Guard {
	return first(
		p.refuse(GuardReported, n.Reported),
		p.refuse(GuardHeard, everybody),
		p.refuse(GuardUsedElsewhere, !elsewhere),
	)
}
