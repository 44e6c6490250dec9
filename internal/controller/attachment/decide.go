/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/handshake"
)

// Act is one kind of step.
type Act string

// Acts, those that make room first.
const (
	// Release takes the finalizer off intents that are let go.
	Release Act = "Release"
	// Look reads the node's state live, because the next decision must not rest on the cache.
	Look Act = "Look"
	// MarkLost writes Detaching for an attachment that is gone or going without us.
	MarkLost Act = "MarkLost"
	// MarkDetaching writes Detaching for an attachment that nobody wants.
	MarkDetaching Act = "MarkDetaching"
	// Unlist takes the volume, for which Detaching stands, out of the Node's volumesAttached.
	Unlist Act = "Unlist"
	// Ask has the agent of a node that has rebooted since a forced detach look once more.
	Ask Act = "Ask"
	// Delete deletes the attachment for which Detaching stands.
	Delete Act = "Delete"
	// Forget removes the entry of an attachment that is gone, or marks it detached while the agent has yet to report.
	Forget Act = "Forget"
	// FreeName takes our finalizer off an attachment that was forced away.
	FreeName Act = "FreeName"
	// Attach creates the attachment.
	Attach Act = "Attach"
	// TakeUser makes the lock of a volume for a single user name the intent that is to use it.
	TakeUser Act = "TakeUser"
	// Hold makes an attachment that somebody else created one that Hawser counts on.
	Hold Act = "Hold"
	// Confirm writes Attached.
	Confirm Act = "Confirm"
	// List puts the volume into the Node's volumesAttached, for the kubelet.
	List Act = "List"
)

// Step is one thing to do on one node.
type Step struct {
	Act  Act
	Node *Node
	// Attachment that it is about, where there is one.
	Attachment *Attachment
	// Intents to release.
	Intents []*Intent
	// Evidence: the detach rests on the node's evidence, not on the agent's release.
	Evidence bool
}

// decide returns what to do next, after elect. It changes nothing. Detaching comes first: while there is anything
// to detach, nothing is attached. It does not propose an act again that was refused in this pass.
func decide(f *Facts, p handshake.Protocol) []Step {
	chosen := choose(f)
	var steps []Step
	for _, n := range f.Nodes {
		if n.Wait == nil {
			steps = append(steps, makeRoom(f, p, n, chosen)...)
		}
	}
	if len(steps) > 0 || f.lockUnreadable() {
		return steps
	}
	for _, n := range f.Nodes {
		if n.Wait == nil && (!f.Exclusive || n == chosen) {
			steps = append(steps, bringIn(f, n)...)
		}
	}
	return steps
}

// elect: of the intents for a volume with a single user only the first stays, also while it is leaving. It is the one that the lock
// names, if that is still there.
func elect(f *Facts) {
	if !f.SingleUser {
		return
	}
	var first *Intent
	for _, n := range f.Nodes {
		for _, i := range append(append([]*Intent{}, n.Wanted...), n.Leaving...) {
			if (i.mayAttach() || i.pinned()) && (first == nil || f.uses(i) || !f.uses(first) && i.older(first)) {
				first = i
			}
		}
	}
	for _, n := range f.Nodes {
		var wanted []*Intent
		for _, i := range n.Wanted {
			switch {
			case i == first || i.pinned():
				wanted = append(wanted, i)
			case i.mayAttach():
				n.Refused = append(n.Refused, i)
			}
		}
		n.Wanted = wanted
	}
}

// choose names the node that may have an exclusive volume: where it is, then where its lock is, then whose
// intent is the oldest. A node that cannot have it before its agent reports comes last.
func choose(f *Facts) *Node {
	var chosen *Node
	for _, n := range f.Nodes {
		if n.candidate() != nil && (chosen == nil || before(f, n, chosen)) {
			chosen = n
		}
	}
	return chosen
}

func before(f *Facts, n, m *Node) bool {
	if a, b := n.awaitsReport(), m.awaitsReport(); a != b {
		return b
	}
	if a, b := n.State.Entry.State == handshake.Attached, m.State.Entry.State == handshake.Attached; a != b {
		return a
	}
	if a, b := f.Lock.Holder == n.Name, f.Lock.Holder == m.Name; a != b {
		return a
	}
	return n.candidate().older(m.candidate())
}

// keeps says whether what is on the node is to stay there.
func keeps(f *Facts, n, chosen *Node) bool {
	if len(n.Wanted) == 0 {
		// Pods use it: their intents are on the way, or it is upstream that attaches for them and will detach after them.
		return n.Pods && n.Evidence == nil
	}
	if f.Exclusive && n.State.Entry.State == handshake.Attached && !n.State.InUse() && usedSomewhere(f) {
		return false
	}
	return !f.Exclusive || f.lockUnreadable() || n == chosen || n.State.Entry.State == handshake.Attached
}

// usedSomewhere: where a node has the volume and does not use it, the API server was restored from a backup. The volume has
// left that node since, and is in use on another one.
func usedSomewhere(f *Facts) bool {
	return slices.ContainsFunc(f.Nodes, func(m *Node) bool { return m.State.Reported && m.State.InUse() && !m.State.Entry.Forced })
}

// makeRoom is the way out, one step at a time.
func makeRoom(f *Facts, p handshake.Protocol, n, chosen *Node) []Step {
	if steps := release(p, n, keeps(f, n, chosen)); steps != nil {
		return steps
	}
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.NameHeld && a.Unpublished && p.MayFreeName(n.State, a.Attachment) == handshake.GuardNone {
			return freeOrLock(f, n, chosen, a)
		}
	}
	switch n.State.Entry.State {
	case handshake.Attached:
		if lost(n) {
			return []Step{{Act: MarkLost, Node: n}}
		}
		if n.declared(n.State.Entry.UID) || !keeps(f, n, chosen) {
			return markDetaching(f, p, n, n.State.Entry.UID)
		}
		if a := n.attachmentOf(n.State.Entry.UID); a != nil && !a.Held {
			return []Step{{Act: Hold, Node: n, Attachment: a}}
		}
	case handshake.Detaching:
		if steps := restOnEvidence(f, p, n); steps != nil {
			return steps
		}
		return goOnDetaching(f, p, n, chosen)
	default:
		if steps := declaredAway(f, p, n); steps != nil {
			return steps
		}
		if !keeps(f, n, chosen) {
			return clearAway(f, p, n)
		}
	}
	return nil
}

// freeOrLock frees the name. Beside a kubelet that waits there the volume has to be the node's before that: such a kubelet mounts
// as soon as something is attached, and from then on keeps the lock.
func freeOrLock(f *Facts, n, chosen *Node, a *Attachment) []Step {
	switch {
	case !n.State.InUse() || !f.Exclusive || f.Lock.Holder == n.Name && f.Lock.MovedFrom == "":
		return []Step{{Act: FreeName, Node: n, Attachment: a}}
	case mayComeBack(f, n, chosen):
		return []Step{{Act: Ask, Node: n, Attachment: a}}
	}
	return nil
}

// clearAway detaches what nobody wants and no entry speaks of: in Replace everything under the shared name, and a volume
// that the Node lists although it is not attached.
func clearAway(f *Facts, p handshake.Protocol, n *Node) []Step {
	a := n.held()
	if a == nil && f.Replace && (n.Managed || n.Missing) {
		a = n.shared(f)
	}
	if a != nil {
		return markDetaching(f, p, n, a.UID)
	}
	if f.Replace && n.Lists.Attached && len(n.Attachments) == 0 {
		return markDetaching(f, p, n, "")
	}
	return nil
}

// release lets intents go that the agent has acknowledged, and all that are leaving once nothing is left on the node that the
// agent could use, at a version that was read live. Where the volume stays for others, an agent that reports it not in use at
// such a version has acknowledged as well: it publishes only after it has read the intent live once more. A policy is needed for as
// long as the node may have to be forced.
func release(p handshake.Protocol, n *Node, kept bool) []Step {
	idle := kept && n.State.Reported && (!n.State.InUse() || n.KubeletUses)
	evidence := n.State.Entry.Forced || !n.State.Exists && n.Missing
	free := p.MayReleaseIntent(n.State, idle, evidence) == handshake.GuardNone &&
		(n.State.Entry.State != handshake.Absent || n.held() == nil)
	var intents []*Intent
	for _, i := range n.Leaving {
		if i.Object.Spec.DetachPolicy != nil && awaitsLook(p.Kubelet, p, n) {
			continue
		}
		if acknowledged(i.Object) || free && n.Live {
			intents = append(intents, i)
		}
	}
	switch {
	case len(intents) > 0:
		return []Step{{Act: Release, Node: n, Intents: intents}}
	case len(n.Leaving) > 0 && free && !n.Live:
		return []Step{{Act: Look, Node: n}}
	}
	return nil
}

// lost: the attachment that the entry speaks of is not there any more, or is on its way out without us.
func lost(n *Node) bool {
	if n.Entry.AttachmentName == "" {
		return false
	}
	a := n.attachmentOf(n.State.Entry.UID)
	return a == nil || a.Terminating
}

// markDetaching on the agent's release or, failing that, on evidence; otherwise it is waited for. What the kubelet lists as in
// use, or may have listed on a Node that is gone, is not marked: it could not be unlisted, and Detaching is final.
func markDetaching(f *Facts, p handshake.Protocol, n *Node, uid types.UID) []Step {
	if f.Replace && (n.Lists.InUse || n.Lists.Missing) && !n.evident(uid) {
		return nil
	}
	for _, evidence := range []bool{n.declared(uid), true} {
		if (!evidence || n.evident(uid)) && p.MayMarkDetaching(n.State, uid, evidence) == handshake.GuardNone {
			return []Step{{Act: MarkDetaching, Node: n, Attachment: n.attachmentOf(uid), Evidence: evidence}}
		}
	}
	return nil
}

// goOnDetaching: Detaching stands; the attachment is deleted, and its entry goes once it is gone.
func goOnDetaching(f *Facts, p handshake.Protocol, n, chosen *Node) []Step {
	a := n.attachmentOf(n.State.Entry.UID)
	switch {
	case toUnlist(f, p, n):
		if p.MayUnlistAttached(n.State, n.Lists) == handshake.GuardNone {
			return []Step{{Act: Unlist, Node: n}}
		}
	case a == nil || a.Gone():
		if !n.State.Entry.Detached || p.MayForget(n.State, handshake.Attachment{}) == handshake.GuardNone {
			return []Step{{Act: Forget, Node: n, Attachment: a}}
		}
		if toAsk(f, p, n, chosen) {
			return []Step{{Act: Ask, Node: n, Attachment: a}}
		}
	case a.Terminating:
	case n.State.Entry.Forced:
		return []Step{{Act: Delete, Node: n, Attachment: a}}
	case f.Replace:
		if p.MayDeleteUnderKubelet(n.State, a.Attachment) == handshake.GuardNone {
			return []Step{{Act: Delete, Node: n, Attachment: a}}
		}
	case n.Pods && a.Held:
		// Pods go on using it; upstream owns it once they are gone and the hold is off.
	case n.Pods:
		// A pod took it up meanwhile: the hold voids a delete that may be on its way.
		return []Step{{Act: Hold, Node: n, Attachment: a}}
	default:
		return []Step{{Act: Delete, Node: n, Attachment: a}}
	}
	return nil
}

// bringIn is the way in, one step at a time.
func bringIn(f *Facts, n *Node) []Step {
	i := n.candidate()
	switch {
	case i == nil:
		return nil
	case n.State.Entry.State == handshake.Attached:
		switch {
		case f.SingleUser && !f.locked(n):
			return []Step{{Act: TakeUser, Node: n}}
		case stale(f, n, i):
			return []Step{{Act: Confirm, Node: n, Attachment: n.attachmentOf(n.State.Entry.UID)}}
		case f.Replace && n.Entry.AttachmentName != "" && !n.Lists.Attached && n.forKubelet():
			return []Step{{Act: List, Node: n}}
		}
		return nil
	case !ready(f, n):
		return nil
	case !f.AttachRequired:
		return []Step{{Act: Confirm, Node: n}}
	}
	a := n.usable()
	switch {
	case len(n.Attachments) == 0:
		return []Step{{Act: Attach, Node: n}}
	case a == nil:
		// The one that goes away has to be gone first.
		return nil
	case !a.Held:
		return []Step{{Act: Hold, Node: n, Attachment: a}}
	case a.Attached:
		return []Step{{Act: Confirm, Node: n, Attachment: a}}
	}
	return nil
}

// ready: nothing stands in the way of an attachment to the node. Without the admission policies nothing would protect it. What was
// declared released is free for other nodes; this one gets the volume when its agent has reported.
func ready(f *Facts, n *Node) bool {
	inherited := n.inherits() && !(f.SingleUser && n.candidate().byAgent())
	return f.PolicyMissing == "" && n.State.Reported && n.State.Entry.State == handshake.Absent && (!n.State.Use.InUse || inherited) &&
		!(f.AttachRequired && n.DriverMissing) && len(blockers(f, n)) == 0 && !n.Limit.reached()
}

// blockers are the other nodes on which an exclusive volume is, or may be.
func blockers(f *Facts, n *Node) []*Node {
	if !f.Exclusive {
		return nil
	}
	var blocking []*Node
	for _, m := range f.Nodes {
		if m != n && occupied(m) {
			blocking = append(blocking, m)
		}
	}
	return blocking
}

// occupied: what is not known counts as held.
func occupied(m *Node) bool {
	for i := range m.Attachments {
		if !m.Attachments[i].Gone() {
			return true
		}
	}
	return m.State.Entry.State == handshake.Attached || m.State.InUse() && !m.State.Entry.Forced
}
