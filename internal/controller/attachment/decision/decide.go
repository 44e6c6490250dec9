/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package decision decides what to do about a volume next, and what to report of it: pure functions of facts that
// others have gathered. It has no client and no context.
package decision

import (
	"slices"

	"github.com/hawser-io/hawser/internal/handshake"
)

// Decide returns what to do next, after elect. It changes nothing. Detaching comes first: while there is anything
// to detach, nothing is attached. It does not propose an act again that was refused in this pass.
func Decide(f *Facts, p handshake.Protocol) []Step {
	chosen := choose(f)
	var steps []Step
	for _, n := range f.Nodes {
		if n.Wait == nil {
			steps = append(steps, detachSteps(f, p, n, chosen)...)
		}
	}
	if len(steps) > 0 || f.LockUnknown() {
		return steps
	}
	for _, n := range f.Nodes {
		if n.Wait == nil && (!f.Exclusive || n == chosen) {
			steps = append(steps, attachSteps(f, n)...)
		}
	}
	return steps
}

// KeepOneUser keeps only the first of the intents for a volume with a single user, also while it is leaving. It is the
// one that the lock names, if that is still there. Of other volumes it keeps as many as a node takes.
func KeepOneUser(f *Facts) {
	if !f.SingleUser {
		limitUses(f)
		return
	}
	var first *Intent
	for _, n := range f.Nodes {
		for _, i := range append(append([]*Intent{}, n.Wanted...), n.Leaving...) {
			if (i.mayAttach() || i.Pinned()) && (first == nil || f.LockNames(i) || !f.LockNames(first) && i.older(first)) {
				first = i
			}
		}
	}
	for _, n := range f.Nodes {
		var wanted []*Intent
		for _, i := range n.Wanted {
			switch {
			case i == first || i.Pinned():
				wanted = append(wanted, i)
			case i.mayAttach():
				n.Refused = append(n.Refused, i)
			}
		}
		n.Wanted = wanted
	}
}

// choose names the node that may have an exclusive volume: where it is, then where its lock is, then whose
// intent is the oldest. A node that takes nothing new comes last.
func choose(f *Facts) *Node {
	var chosen *Node
	for _, n := range f.Nodes {
		if n.Candidate() != nil && (chosen == nil || before(f, n, chosen)) {
			chosen = n
		}
	}
	return chosen
}

func before(f *Facts, n, m *Node) bool {
	if a, b := n.takesNone() || lacksRoom(f, n), m.takesNone() || lacksRoom(f, m); a != b {
		return b
	}
	if a, b := n.State.Entry.State == handshake.Attached, m.State.Entry.State == handshake.Attached; a != b {
		return a
	}
	if a, b := f.Lock.Holder == n.Name, f.Lock.Holder == m.Name; a != b {
		return a
	}
	return n.Candidate().older(m.Candidate())
}

// lacksRoom reports whether the node has no part of the volume, and cannot take it at present. Nothing is to be waited
// for there: a pod of an older intent may run on until the one elsewhere is ready.
func lacksRoom(f *Facts, n *Node) bool {
	return n.State.Entry.State == handshake.Absent && !occupied(n) &&
		(!n.State.Exists || n.State.Blank || f.AttachRequired && n.DriverMissing || n.Limit.Reached())
}

// keeps reports whether what is on the node is to stay there.
func keeps(f *Facts, n, chosen *Node) bool {
	if len(n.Wanted) == 0 {
		// Pods use it: their intents are on the way, or it is upstream that attaches for them and will detach after them.
		// A machine whose access is cut may still run them.
		return n.Pods && (n.Evidence == nil || CutsAccess(n.Evidence))
	}
	if f.Exclusive && n.State.Entry.State == handshake.Attached && !n.State.InUse() && usedSomewhere(f) {
		return false
	}
	if f.ListedForAnother(n) && n.State.Entry.State == handshake.Attached {
		return false
	}
	return !f.Exclusive || f.LockUnknown() || n == chosen || n.State.Entry.State == handshake.Attached
}

// usedSomewhere: where a node has the volume and does not use it, the API server was restored from a backup. The
// volume has left that node since, and is in use on another one.
func usedSomewhere(f *Facts) bool {
	return slices.ContainsFunc(f.Nodes, func(m *Node) bool {
		return m.State.Reported && m.State.InUse() && !m.State.Entry.Forced
	})
}
