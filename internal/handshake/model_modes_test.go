/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"strings"
	"testing"
)

// A volume whose access modes change: several nodes could have it, and from some time on one alone may. A leader that
// sleeps, or whose cache is old, goes on to take it for a shared one, and takes no lock. The volume is exclusive (I3)
// from when it is Attached under a lock. Two nodes and two leaders; how a lock moves, the other worlds explore.

const (
	effectModesLock  effect = "the lock counts whatever the access modes are"
	effectModesElse  effect = "attachments of other nodes are read before Attached"
	effectModesOrder effect = "attachments of other nodes are read after the lock"
)

type modesPC uint8

const (
	modesIdle  modesPC = iota
	modesBegun         // has seen the attachment, and knows the node's state
	modesLock          // has read the lock
	modesElse          // has read the other node's attachment
	modesWrite         // has read the attachment, and is about to write Attached
)

type modesLeader struct {
	pc        modesPC
	node      uint8
	exclusive bool // as the leader knows the volume
	lock      uint8
}

type modesState struct {
	exclusive    bool
	lock         uint8 // node + 1
	va, attached [2]bool
	// locked: Attached was written by a leader that knew of the lock.
	locked [2]bool
	leader [2]modesLeader
}

func (s modesState) tell() string {
	return fmt.Sprintf("exclusive: %t, lock: %q, attachments: %v, Attached: %v", s.exclusive, nodeNames[s.lock],
		s.va, s.attached)
}

type modesModel struct{ without effect }

func (m modesModel) steps(s modesState, emit func(modesState, string, ...any)) {
	if !s.exclusive && !(s.attached[0] && s.attached[1]) {
		to := s
		to.exclusive = true
		emit(to, "someone makes the volume exclusive")
	}
	for n := range s.va {
		if s.va[n] {
			to := s
			to.va[n], to.attached[n], to.locked[n] = false, false, false
			for l := range to.leader {
				// Detaching is a write of the node's state.
				if int(to.leader[l].node) == n {
					to.leader[l] = modesLeader{}
				}
			}
			emit(to, "a leader detaches the volume from %s", nodeNames[n+1])
		} else {
			to := s
			to.va[n] = true
			emit(to, "a leader creates the attachment of %s", nodeNames[n+1])
		}
		if s.exclusive && s.lock == 0 {
			to := s
			to.lock = uint8(n) + 1
			emit(to, "a leader takes the lock for %s", nodeNames[n+1])
		}
	}
	for l := range s.leader {
		m.leaderSteps(s, l, emit)
	}
}

func (m modesModel) leaderSteps(s modesState, l int, emit func(modesState, string, ...any)) {
	leader := s.leader[l]
	become := func(next modesLeader, act string, args ...any) {
		to := s
		to.leader[l] = next
		emit(to, fmt.Sprintf("leader-%d ", l+1)+act, args...)
	}
	on := nodeNames[leader.node+1]
	other := 1 - leader.node
	if leader.pc != modesIdle {
		become(modesLeader{}, "begins again")
	}
	next := leader
	next.pc++
	switch leader.pc {
	case modesIdle:
		for n := range s.va {
			if !s.va[n] || s.attached[n] {
				continue
			}
			become(modesLeader{pc: modesBegun, node: uint8(n)},
				"takes the volume for shared, sees the attachment of %s and its state", nodeNames[n+1])
			if s.exclusive {
				become(modesLeader{pc: modesBegun, node: uint8(n), exclusive: true}, "sees the attachment of %s and its state",
					nodeNames[n+1])
			}
		}
	case modesBegun:
		if m.without == effectModesOrder && s.va[other] && leader.exclusive {
			return
		}
		if next.lock = s.lock; m.without == effectModesLock && !leader.exclusive {
			next.lock = 0
		}
		become(next, "reads the lock: %q", nodeNames[s.lock])
	case modesLock:
		looks := leader.lock != 0 && m.without != effectModesElse && m.without != effectModesOrder
		if !looks || !s.va[other] {
			become(next, "reads what else is attached")
		}
	case modesElse:
		lock := Lock{Exists: leader.lock != 0, Holder: nodeNames[leader.lock]}
		live := Attachment{Exists: s.va[leader.node], UID: uidNames[1], Attached: s.va[leader.node]}
		if (Protocol{}).MayWriteAttached(Node{Exists: true, Reported: true}, on, leader.exclusive, lock, live) == GuardNone {
			become(next, "reads the attachment of %s", on)
		}
	case modesWrite:
		to := s
		to.leader[l] = modesLeader{}
		to.attached[leader.node], to.locked[leader.node] = true, leader.lock != 0
		for o := range to.leader {
			if to.leader[o].pc != modesIdle && to.leader[o].node == leader.node {
				to.leader[o] = modesLeader{}
			}
		}
		emit(to, "leader-%d writes Attached for %s", l+1, on)
	}
}

// explore returns the number of states, and how I3 breaks if it does.
func (m modesModel) explore() (int, string) {
	type origin struct {
		from int
		act  string
	}
	seen, all, came := map[modesState]bool{{}: true}, []modesState{{}}, []origin{{}}
	for i := 0; i < len(all); i++ {
		broken := ""
		m.steps(all[i], func(to modesState, act string, args ...any) {
			if seen[to] || broken != "" {
				return
			}
			seen[to] = true
			all, came = append(all, to), append(came, origin{i, fmt.Sprintf(act, args...)})
			if to.attached[0] && to.attached[1] && (to.locked[0] || to.locked[1]) {
				var lines []string
				for j := len(all) - 1; j != 0; j = came[j].from {
					lines = append([]string{came[j].act + " (" + all[j].tell() + ")"}, lines...)
				}
				broken = (&violation{I3, lines}).String()
			}
		})
		if broken != "" {
			return len(all), broken
		}
	}
	return len(all), ""
}

func TestAVolumeThatBecomesExclusiveIsUsableOnOneNode(t *testing.T) {
	states, broken := modesModel{}.explore()
	if broken != "" {
		t.Fatalf("a shared volume becomes exclusive: %s, want no state in which two nodes use it", broken)
	}
	report(t, "%-62s %8d states", "two nodes, a shared volume becomes exclusive", states)
	for _, left := range []effect{effectModesLock, effectModesElse, effectModesOrder} {
		t.Run(string(left), func(t *testing.T) {
			_, broken := modesModel{left}.explore()
			if broken == "" {
				t.Fatalf("without %q no state is broken, want one", left)
			}
			report(t, "without %-40q %s", left, strings.SplitN(broken, "\n", 2)[0])
			t.Log(broken)
		})
	}
}
