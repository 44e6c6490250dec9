/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The users of a ReadWriteOncePod volume. The lock keeps the volume on one node, which the other worlds explore; this
// model is about two intents on that node. An intent is in the end deleted and created again under another UID, any
// number of times. Two leaders may each stop before any request. The agent publishes what is pinned and not deleted,
// and reads that live (I6).

// I7: a volume for a single user has one user at most.
const I7 Invariant = "I7 one user of a volume for a single user"

const (
	effectUserCAS  effect = "compare-and-swap on the lock's user"
	effectUserUID  effect = "the lock names its user by UID"
	effectUserLive effect = "the lock's user is read live"
	effectPinUID   effect = "a pin is written to its intent's UID"
)

// nothing uses; one that is gone has no number any more.
const (
	nobody  = 0
	oneGone = 3
)

// candidate for the volume: one intent, with what the agent has published for it.
type candidate struct {
	phase             intentPhase
	pinned, published bool
}

type userPC uint8

const (
	userIdle userPC = iota
	userRead        // has read the lock
	userGone        // has read the intent that it names, and may pass it on
	userFree        // has read the node's state, and is about to write the lock
	userPin         // is about to pin
)

type userLeader struct {
	pc   userPC
	want uint8 // the intent that it acts for, from 1
	saw  uint8 // the user that the lock named
}

type userState struct {
	user   uint8
	intent [2]candidate
	// unseen: the cache of a leader does not show the intent yet.
	unseen [2]bool
	// orphan is a publication whose intent was cut off.
	orphan bool
	inUse  bool
	leader [2]userLeader
}

func (s *userState) uid(user uint8) string {
	return [...]string{"", "intent-1", "intent-2", "gone"}[user]
}

func (s *userState) users() (n int) {
	if s.orphan {
		n++
	}
	for _, c := range s.intent {
		if c.pinned || c.published {
			n++
		}
	}
	return n
}

func (s userState) tell() string {
	var told []string
	for i, c := range s.intent {
		if c.phase == intentAbsent {
			continue
		}
		text := fmt.Sprintf("intent-%d", i+1)
		for _, w := range [...]struct {
			ok   bool
			word string
		}{{c.phase == intentDeleting, " deleting"}, {c.pinned, " pinned"}, {c.published, " published"}} {
			if w.ok {
				text += w.word
			}
		}
		told = append(told, text)
	}
	if s.orphan {
		told = append(told, "an orphan")
	}
	who := s.uid(s.user)
	if s.user == nobody {
		who = "nobody"
	}
	return fmt.Sprintf("lock: %s; in use: %t; %s", who, s.inUse, strings.Join(told, ", "))
}

type userNext struct {
	act   string
	to    userState
	fault bool
}

type userModel struct {
	rules   Protocol
	without effect
}

func (m userModel) steps(s userState) (out []userNext) {
	emit := func(fault bool, change func(*userState), act string, args ...any) {
		to := s
		change(&to)
		out = append(out, userNext{fmt.Sprintf(act, args...), to, fault})
	}
	for i := range s.intent {
		m.intentSteps(&s, i, emit)
	}
	if s.orphan {
		emit(false, func(s *userState) { s.orphan = false }, "someone unmounts the orphan")
	}
	if s.inUse && !s.intent[0].published && !s.intent[1].published && !s.orphan {
		emit(false, func(s *userState) { s.inUse = false }, "agent clears inUse")
	}
	for l := range s.leader {
		m.leaderSteps(&s, l, emit)
	}
	return out
}

// end the intent: its UID never comes back.
func (m userModel) end(s *userState, i int) {
	s.intent[i], s.unseen[i] = candidate{}, false
	if s.user == uint8(i+1) && m.without != effectUserUID {
		s.user = oneGone
	}
	for l := range s.leader {
		leader := &s.leader[l]
		if leader.saw == uint8(i+1) && m.without != effectUserUID {
			leader.saw = oneGone
		}
		if leader.want == uint8(i+1) && !(leader.pc == userPin && m.without == effectPinUID) {
			*leader = userLeader{}
		}
	}
}

func (m userModel) intentSteps(s *userState, i int, emit func(bool, func(*userState), string, ...any)) {
	c := s.intent[i]
	switch c.phase {
	case intentAbsent:
		emit(false, func(s *userState) {
			s.intent[i].phase, s.unseen[i] = intentLive, true
		}, "someone creates intent-%d", i+1)
		return
	case intentLive:
		emit(false, func(s *userState) { s.intent[i].phase = intentDeleting }, "someone deletes intent-%d", i+1)
	case intentDeleting:
		if !c.published {
			emit(false, func(s *userState) { m.end(s, i) }, "a leader takes the finalizer off intent-%d", i+1)
		}
	}
	if s.unseen[i] {
		emit(false, func(s *userState) { s.unseen[i] = false }, "the leaders' caches show intent-%d", i+1)
	}
	emit(true, func(s *userState) {
		published := s.intent[i].published
		m.end(s, i)
		s.orphan = s.orphan || published
	}, "someone cuts the finalizer of intent-%d off", i+1)
	if c.phase == intentLive && c.pinned && !c.published {
		if !s.inUse {
			emit(false, func(s *userState) { s.inUse = true }, "agent writes inUse")
		} else {
			emit(false, func(s *userState) { s.intent[i].published = true }, "agent publishes for intent-%d", i+1)
		}
	}
	if c.published && c.phase == intentDeleting {
		emit(false, func(s *userState) { s.intent[i].published = false }, "agent unpublishes for intent-%d", i+1)
	}
}

func (m userModel) leaderSteps(s *userState, l int, emit func(bool, func(*userState), string, ...any)) {
	leader := s.leader[l]
	become := func(next userLeader) func(*userState) { return func(s *userState) { s.leader[l] = next } }
	if leader.pc != userIdle {
		emit(false, become(userLeader{}), "leader-%d begins again", l+1)
	}
	lock := Lock{Exists: true, Holder: nodeNames[1], User: uidNames[leader.saw]}
	want := uidNames[leader.want]
	switch leader.pc {
	case userIdle:
		for i, c := range s.intent {
			if c.phase != intentLive || c.pinned {
				continue
			}
			emit(false, become(userLeader{pc: userRead, want: uint8(i + 1), saw: s.user}),
				"leader-%d reads the lock for intent-%d", l+1, i+1)
		}
	case userRead:
		if m.rules.MayPin(lock, want) == GuardNone {
			emit(false, become(userLeader{pc: userPin, want: leader.want, saw: leader.saw}),
				"leader-%d is about to pin intent-%d", l+1, leader.want)
		}
		for _, named := range m.reads(s, leader.saw) {
			if m.rules.MayPassOn(named) == GuardNone {
				next := leader
				next.pc = userGone
				emit(false, become(next), "leader-%d reads the intent that the lock names: it is there: %t", l+1, named.Exists)
			}
		}
	case userGone:
		if m.rules.MayTakeUser(lock, want, Intent{}, Node{Exists: true, Reported: true, Use: Use{InUse: s.inUse}},
			false) == GuardNone {
			next := leader
			next.pc = userFree
			emit(false, become(next), "leader-%d reads the node's state, in use: %t", l+1, s.inUse)
		}
	case userFree:
		emit(false, func(s *userState) {
			s.leader[l] = userLeader{}
			if s.user == leader.saw || m.without == effectUserCAS {
				m.write(s, leader.want)
			}
		}, "leader-%d writes the lock for intent-%d", l+1, leader.want)
	case userPin:
		emit(false, func(s *userState) {
			s.leader[l] = userLeader{}
			if c := &s.intent[leader.want-1]; c.phase != intentAbsent {
				c.pinned = true
			}
		}, "leader-%d pins intent-%d", l+1, leader.want)
	}
}

// write the lock. A version never comes back: a writer that has read an earlier one is refused, also where it named a
// user that is gone as well.
func (m userModel) write(s *userState, user uint8) {
	s.user = user
	if m.without == effectUserCAS {
		return
	}
	for l := range s.leader {
		if pc := s.leader[l].pc; pc == userRead || pc == userGone || pc == userFree {
			s.leader[l] = userLeader{}
		}
	}
}

// reads are what a leader may find of the intent that the lock names.
func (m userModel) reads(s *userState, user uint8) []Intent {
	if user == nobody || user == oneGone {
		return []Intent{{}}
	}
	c := s.intent[user-1]
	found := []Intent{c.intent()}
	if m.without == effectUserLive && s.unseen[user-1] {
		found = append(found, Intent{})
	}
	return found
}

func (c candidate) intent() Intent {
	return Intent{Exists: c.phase != intentAbsent, Deleting: c.phase == intentDeleting}
}

// explore visits every state and returns how an invariant breaks, if one does.
func (m userModel) explore() (states int, broken string) {
	type origin struct {
		from int
		act  string
	}
	seen, all, came := map[userState]int{{}: 0}, []userState{{}}, []origin{{}}
	var back [][]int
	tell := func(inv Invariant, i int) string {
		var lines []string
		for ; i != 0; i = came[i].from {
			lines = append([]string{came[i].act + " (" + all[i].tell() + ")"}, lines...)
		}
		return (&violation{inv, lines}).String()
	}
	back = append(back, nil)
	for i := 0; i < len(all); i++ {
		for _, n := range m.steps(all[i]) {
			j, known := seen[n.to]
			if !known {
				j = len(all)
				seen[n.to] = j
				all, came, back = append(all, n.to), append(came, origin{i, n.act}), append(back, nil)
				if n.to.users() > 1 {
					return len(all), tell(I7, j)
				}
			}
			if !n.fault {
				back[j] = append(back[j], i)
			}
		}
	}
	for user := range all[0].intent {
		if i, trapped := cannotReachUser(all, back, user); trapped {
			return len(all), tell(I4, i) + fmt.Sprintf("      from here on intent-%d is never published\n", user+1)
		}
	}
	return len(all), ""
}

// cannotReachUser walks back from where the intent is published.
func cannotReachUser(all []userState, back [][]int, user int) (int, bool) {
	reached, queue := make([]bool, len(all)), []int{}
	for i := range all {
		if all[i].intent[user].published {
			reached[i], queue = true, append(queue, i)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, i := range back[queue[0]] {
			if !reached[i] {
				reached[i], queue = true, append(queue, i)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return i, true
		}
	}
	return 0, false
}

func TestAVolumeForASingleUserHasOneUserInEveryReachableState(t *testing.T) {
	states, broken := userModel{}.explore()
	if broken != "" {
		t.Fatalf("a volume for a single user: %s, want no state in which it has two", broken)
	}
	report(t, "%-62s %8d states", "one node, two users of a volume for a single user", states)
}

func TestEachGuardOfASingleUserIsNeeded(t *testing.T) {
	source, err := os.ReadFile("user.go")
	if err != nil {
		t.Fatal(err)
	}
	var models []userModel
	for _, match := range regexp.MustCompile(`Guard = "(\w+)"`).FindAllSubmatch(source, -1) {
		models = append(models, userModel{rules: Protocol{without: Guard(match[1])}})
	}
	if len(models) < 3 {
		t.Fatalf("found only %d guards in user.go, want at least 3", len(models))
	}
	for _, effect := range []effect{effectUserCAS, effectUserUID, effectUserLive, effectPinUID} {
		models = append(models, userModel{without: effect})
	}
	for _, m := range models {
		left := string(m.rules.without) + string(m.without)
		t.Run(left, func(t *testing.T) {
			_, broken := m.explore()
			if broken == "" {
				t.Fatalf("without %q no state is broken, want one: the guard is not needed or the model too small", left)
			}
			report(t, "without %-40q %s", left, strings.SplitN(broken, "\n", 2)[0])
			t.Log(broken)
		})
	}
}
