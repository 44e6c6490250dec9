/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"math/bits"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// The model is a small cluster as one comparable value: everything that the API server, the
// driver's backend, the hosts and the processes remember. Two devices keep it finite without bounding
// how long it runs:
//
//   - UIDs matter only by equality, so each state is renamed to a canonical form. A
//     volume may move, be detached and come back any number of times.
//   - A copy that was read at a version matters only while that version is current: once the object was
//     written, the compare-and-swap that waits for it is bound to fail, and the holder of the copy can as well
//     begin again. So an act that carries a version falls back to idle when its object is written; that is the
//     comparison of resourceVersions, and it is what the removed guard "compare-and-swap" takes away.
//
// What is wanted is not part of a state: every process may at any moment take up any act
// that the protocol lets it do, as if the wish had changed or its cache were arbitrarily old.

// phase of a VolumeAttachment, with what the driver's attacher did for it.
type phase uint8

const (
	vaNone      phase = iota
	vaNew             // created, not seen by the attacher
	vaPublished       // the driver has published, the status does not say so yet
	vaAttached        // status.attached
	vaGoing           // terminating, still published
	vaNameOnly        // terminating, unpublished, kept by our finalizer
)

type attachmentState struct {
	phase    phase
	uid      uint8
	nameHeld bool
}

func (v attachmentState) published() bool {
	return v.phase == vaPublished || v.phase == vaAttached || v.phase == vaGoing
}

func (v attachmentState) terminating() bool { return v.phase == vaGoing || v.phase == vaNameOnly }

type entryState uint8

const (
	noEntry entryState = iota
	entryAttached
	entryDetaching
)

type entry struct {
	state                         entryState
	uid                           uint8
	detached, forced, unprotected bool
	// declared: an administrator has said that the machine is off.
	declared bool
	// unlisted: the volume was taken out of the Node's volumesAttached; looked: the agent has checked after that.
	unlisted, looked bool
	// boot that the Node named when the volume was taken out.
	boot uint8
	// asked: the agent was asked for a check once more, after the attachment was gone; relooked: it has checked since.
	asked, relooked bool
	// by is the fence on which the detach rests, where access was cut. regained is read by no process: the cut was lifted
	// before the volume was handed over.
	by       fenceOf
	regained bool
}

type useState struct {
	uid            uint8
	inUse, waiting bool
	// foreign: by another machine than the one that acts; gone: by one that is off for good.
	foreign, gone bool
}

// record is what an agent, or the kubelet, wrote to disk before it called the driver.
type record struct {
	uid uint8
	// pending: a call may be running whose end is not known.
	pending bool
	// released: an unstage was seen to end well.
	released bool
}

// free: the record does not keep the agent from using the volume under uid.
func (r record) free(uid uint8) bool {
	return r.uid == 0 || r.uid == uid || r.released && !r.pending
}

type holdKind uint8

const (
	holdNone    holdKind = iota
	holdStaged           // the driver has the volume on the node, the mount table does not show it
	holdMounted          // the mount table shows it
)

// hold is what really is on the host.
type hold struct {
	kind holdKind
	uid  uint8
	// cut: it has outlived the unpublish of its attachment.
	cut bool
}

type writeKind uint8

const (
	noWrite writeKind = iota
	writeInUse
	writeClear
)

// lateWrite is an agent's write that nothing waits for any more and that may still arrive.
type lateWrite struct {
	kind writeKind
	uid  uint8
}

type nodeState struct {
	va attachmentState

	// NodeVolumeState
	exists, reported bool
	entry            entry
	use              useState
	booted           bool // the agent has reported the host's present boot

	// the host and its agent
	up    bool
	acked bool // the agent's last write was acknowledged to this process
	rec   record
	hold  hold
	call  uint8 // UID of the stage call that is running
	waits bool  // the agent waits for the call
	late  lateWrite

	// Where the API is restored: the manager has not heard the agent since (unheard), it has not confirmed the agent's
	// session (unconfirmed), and the agent has no session (between).
	unheard, unconfirmed, between bool
	excuse                        excuse
	// behind: the cache of the manager that attaches still has this state as it was restored, and pastUse is what that
	// says.
	behind, pastUse bool

	said assertState
	cut  cutState
	// away is the other machine of the node's name (only in worlds with two).
	away hostState

	// leased: the agent's Lease is there (only in worlds that begin without an agent).
	leased bool

	// dead: the machine never comes back; at best there will be a new one of its name.
	dead bool
	// declared is the set of UIDs that an administrator has declared released. It stays a UID's whole life: what a
	// declaration that was taken off again allowed was optional.
	declared uint64
	// excused is what the invariants remember and no process reads: the set of UIDs that were
	// forced away, declared, or lost to someone else.
	excused uint64

	intent  intentState
	kubelet kubeletState

	// wrote and wroteNode: the step has written the NodeVolumeState or the Node, which have more volumes than this one.
	wrote, wroteNode bool
}

func (n *nodeState) isExcused(uid uint8) bool  { return uid != 0 && n.excused&(1<<uid) != 0 }
func (n *nodeState) isDeclared(uid uint8) bool { return uid != 0 && n.declared&(1<<uid) != 0 }

// usable: staged through a live attachment.
func (n *nodeState) usable() bool {
	return n.hold.kind != holdNone && n.hold.uid == n.va.uid && n.va.published()
}

type intentPhase uint8

const (
	intentAbsent intentPhase = iota
	intentLive
	intentDeleting
)

// intentState is one intent for the node, as one that publishes sees it (only in worlds with intents).
type intentState struct {
	phase intentPhase
	// acknowledged: the agent answered that it does not publish it.
	acknowledged bool
	// cached is the agent's view of it.
	cached intentPhase
	// cleared: the agent has decided to publish.
	cleared bool
	// published for this intent.
	published bool
	// lost: the object went without its finalizer having been taken off by us.
	lost bool
}

// kubeletState is the Node object and the kubelet's memory (only in worlds where the kubelet publishes).
type kubeletState struct {
	// missing: there is no Node.
	missing       bool
	listed, inUse bool
	// verified is the UID of the attachment that the kubelet has seen attached.
	verified uint8
	// looking: the agent has checked and is about to report; saw is what it saw, and quiet that nothing of it can be of
	// this boot.
	looking, saw, quiet bool
	// shown is the UID of the attachment of which the agent knows that what is staged is of it, because a report proved
	// that and the kubelet's record was not written since. asSeen: it was not written since the check of the report that
	// is on its way.
	shown  uint8
	asSeen bool

	// In worlds where the host reboots: boot is the running one, named the one that the Node names, said the one that the
	// agent reported.
	boot, named, said uint8
	// trusts: the kubelet found a record when it started, so it asks only whether there is an attachment, not the Node.
	trusts bool
	// waits: a pod was bound here before the kubelet started, and goes only once it has run.
	waits bool
}

type lockState struct {
	exists       bool
	holder, from uint8 // node + 1
}

// pc says what a leader has done of its present act.
type pc uint8

const (
	idle             pc = iota
	attaching           // has made some of the reads before Attached
	attached            // is about to write Attached
	marking             // is about to write Detaching (only where compare-and-swap is left out)
	deleting            // is about to DELETE
	moving              // is about to move the lock
	collecting          // is about to delete the lock (only where the delete carries no version)
	fencing             // has read the lock that is being moved
	fence               // is about to write the fence
	fenced              // is about to clear MovedFrom
	releasing           // is about to take the finalizer off the intent
	listing             // has read the Node
	list                // is about to put the volume into volumesAttached
	unlisted            // has taken the volume out of volumesAttached
	unlistedInUse       // has taken it out while the kubelet lists it in use
	awaiting            // waits for the agent to check
	unheard             // has read the state of a node whose agent is not heard
	releasingUnheard    // has read its Lease too, and is about to write to the state
	cutting             // has read that access is cut, and is about to write Detaching
	relying             // has read the taint and the Lease (only where the state is read after them)
)

// leader is one process of the cluster controller with all it keeps between two requests.
type leader struct {
	pc    pc
	node  uint8
	uid   uint8
	reads uint8 // how many of the reads before Attached are done; of one that is cutting: the fence was lifted since
	lock  lockState
	va    attachmentState
	// boot that the Node named when the volume was taken out.
	boot uint8
}

type state struct {
	node     [2]nodeState
	lock     lockState
	leader   [2]leader
	restored restoredState
	// older is what a cache may still show (only where live reads are left out).
	older struct {
		lock lockState
		va   [2]attachmentState
	}
}

var uidNames = func() (names [64]types.UID) {
	for i := range names {
		if i > 0 {
			names[i] = types.UID("u" + strconv.Itoa(i))
		}
	}
	return names
}()

var bootNames = func() (names [64]string) {
	for i := range names {
		if i > 0 {
			names[i] = "boot-" + strconv.Itoa(i)
		}
	}
	return names
}()

var nodeNames = [...]string{"", "node-a", "node-b"}

// view is the node's state as the protocol sees it.
func (n *nodeState) view() Node {
	if !n.exists {
		return Node{}
	}
	return Node{
		Exists: true, Reported: n.reported && !n.unheard, Blank: !n.reported, Unconfirmed: n.unconfirmed,
		Silent:      n.said.silent,
		Looked:      n.entry.looked,
		LookedAgain: n.entry.relooked, Boot: bootNames[n.kubelet.said],
		Entry: Entry{
			State: [...]State{Absent, Attached, Detaching}[n.entry.state], UID: uidNames[n.entry.uid],
			Detached: n.entry.detached, Forced: n.entry.forced, Declared: n.entry.declared, Boot: bootNames[n.entry.boot],
			Asked: n.entry.asked, Lifted: n.entry.by != noFence && n.entry.unprotected,
		},
		Use: Use{
			UID: uidNames[n.use.uid], InUse: n.use.inUse, Waiting: n.use.waiting, Foreign: n.use.foreign,
		},
		Declared: n.declarations(),
	}
}

func (n *nodeState) declarations() []Declaration {
	var declared []Declaration
	for rest := n.declared; rest != 0; rest &= rest - 1 {
		declared = append(declared, Declaration{UID: uidNames[bits.TrailingZeros64(rest)]})
	}
	return declared
}

func (c lockState) view() Lock {
	return Lock{Exists: c.exists, Holder: nodeNames[c.holder], MovedFrom: nodeNames[c.from]}
}

func (v attachmentState) view() Attachment {
	return Attachment{
		Exists: v.phase != vaNone, UID: uidNames[v.uid], Attached: v.phase == vaAttached || v.phase == vaGoing,
		Terminating: v.terminating(), NameHeld: v.nameHeld, Unpublished: v.phase == vaNameOnly,
	}
}

func (i intentState) view() Intent {
	return Intent{Exists: i.phase != intentAbsent, Deleting: i.phase == intentDeleting}
}

// naming gives the UIDs of one node new names in their order of appearance.
type naming struct {
	names [64]uint8
	last  uint8
}

func (m *naming) rename(u *uint8) {
	if *u == 0 {
		return
	}
	if m.names[*u] == 0 {
		m.last++
		m.names[*u] = m.last
	}
	*u = m.names[*u]
}

// canonical renames UIDs and sorts the leaders, which are interchangeable.
func (s state) canonical() state {
	var uids, boots [2]naming
	for i := range s.node {
		n, m := &s.node[i], &uids[i]
		n.wrote, n.wroteNode = false, false
		for _, b := range [...]*uint8{&n.kubelet.boot, &n.kubelet.named, &n.kubelet.said, &n.entry.boot} {
			boots[i].rename(b)
		}
		s.restored.backup.rename(i, m)
		for _, u := range [...]*uint8{&n.va.uid, &n.entry.uid, &n.use.uid, &n.rec.uid, &n.hold.uid, &n.call, &n.late.uid,
			&n.kubelet.verified, &n.kubelet.shown, &s.older.va[i].uid, &n.away.rec.uid, &n.away.hold.uid, &n.away.call,
			&n.away.late.uid} {
			m.rename(u)
		}
	}
	a, b := &s.leader[0], &s.leader[1]
	if a.key(&uids[a.node], &boots[a.node]) < b.key(&uids[b.node], &boots[b.node]) {
		*a, *b = *b, *a
	}
	for i := range s.leader {
		l := &s.leader[i]
		uids[l.node].rename(&l.uid)
		uids[l.node].rename(&l.va.uid)
		boots[l.node].rename(&l.boot)
	}
	for i := range s.node {
		uids[i].renameSet(&s.node[i].excused)
		uids[i].renameSet(&s.node[i].declared)
	}
	return s
}

// renameSet drops the UIDs that nothing names any more: it does not matter what was once said of them.
func (m *naming) renameSet(set *uint64) {
	old := *set
	*set = 0
	for ; old != 0; old &= old - 1 {
		if name := m.names[bits.TrailingZeros64(old)]; name != 0 {
			*set |= 1 << name
		}
	}
}

// key orders leaders, with the names that their UIDs already have; an idle one comes last.
func (l leader) key(m, boots *naming) uint64 {
	k := uint64(l.pc)<<8 | uint64(l.node)
	k = k<<8 | uint64(m.names[l.uid])
	k = k<<4 | uint64(l.reads)
	k = k<<4 | uint64(l.lock.holder)<<2 | uint64(l.lock.from)
	k = k<<4 | uint64(l.va.phase)
	k = k<<8 | uint64(m.names[l.va.uid])
	k = k<<4 | uint64(boots.names[l.boot])
	k <<= 2
	if l.lock.exists {
		k |= 1
	}
	if l.va.nameHeld {
		k |= 2
	}
	return k
}
