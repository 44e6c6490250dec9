/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// detachSteps detaches a volume and releases its intents, one step at a time.
func detachSteps(f *Facts, p handshake.Protocol, n, chosen *Node) []Step {
	if steps := releaseSteps(f, p, n, keeps(f, n, chosen)); steps != nil {
		return steps
	}
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.NameHeld && a.Unpublished && !f.ofAnother(a) &&
			p.MayFreeName(n.State, a.Attachment) == handshake.GuardNone {
			return freeOrLock(f, n, chosen, a)
		}
	}
	switch n.State.Entry.State {
	case handshake.Attached:
		if lost(n) {
			return []Step{{Act: MarkLost, Node: n}}
		}
		if n.declared(n.State.Entry.UID) || !keeps(f, n, chosen) {
			return markDetachingSteps(f, p, n, n.State.Entry.UID)
		}
		if a := n.AttachmentOf(n.State.Entry.UID); a != nil && !a.Held {
			return []Step{{Act: Hold, Node: n, Attachment: a}}
		}
	case handshake.Detaching:
		if steps := restOnEvidence(f, p, n); steps != nil {
			return steps
		}
		return continueDetaching(f, p, n, chosen)
	default:
		if steps := declaredAway(f, p, n); steps != nil {
			return steps
		}
		if !keeps(f, n, chosen) {
			return clearAway(f, p, n)
		}
		if a := n.held(f); a != nil && InTheWay(f, n, a) &&
			p.MayMarkDetaching(n.State, a.UID, false) == handshake.GuardNone {
			return []Step{{Act: Discard, Node: n, Attachment: a}}
		}
	}
	return nil
}

// freeOrLock frees the name. Beside a kubelet that waits there the volume has to be the node's before that: such a
// kubelet mounts as soon as something is attached, and from then on keeps the lock.
func freeOrLock(f *Facts, n, chosen *Node, a *Attachment) []Step {
	switch {
	case !n.State.InUse() || !f.Exclusive || f.Lock.Holder == n.Name && f.Lock.MovedFrom == "":
		return []Step{{Act: FreeName, Node: n, Attachment: a}}
	case nextHolder(f, n, chosen):
		return []Step{{Act: Ask, Node: n, Attachment: a}}
	}
	return nil
}

// clearAway detaches what no intent wants and no entry names: in Replace everything under the shared name, and a volume
// that the Node lists although it is not attached.
func clearAway(f *Facts, p handshake.Protocol, n *Node) []Step {
	a := n.held(f)
	if a == nil && f.Replace && (n.Managed || n.Missing) {
		a = n.UnderSharedName(f)
	}
	if a != nil {
		return markDetachingSteps(f, p, n, a.UID)
	}
	if f.Replace && n.Lists.Attached && len(n.Attachments) == 0 {
		return markDetachingSteps(f, p, n, "")
	}
	return nil
}

// releaseSteps lets intents go that the agent has acknowledged, and all that are leaving once nothing is left on the
// node that the agent could use, at a version that was read live. Where the volume stays for others, an agent that
// reports it not in use at such a version has acknowledged as well: it publishes only after it has read the intent
// live once more. An attachment without an entry was made for the intents that leave, and is detached first, unless it
// stays for others. A policy is needed for as long as the node may have to be forced.
func releaseSteps(f *Facts, p handshake.Protocol, n *Node, kept bool) []Step {
	idle := kept && n.State.Reported && (!n.State.InUse() || n.KubeletUses)
	evidence := n.State.Entry.Forced && p.CutHolds(n.State) == handshake.GuardNone || !n.State.Exists && n.Missing
	free := p.MayReleaseIntent(n.State, idle, evidence) == handshake.GuardNone &&
		(kept || n.State.Entry.State != handshake.Absent || n.held(f) == nil)
	var intents []*Intent
	for _, i := range n.Leaving {
		if i.Object.Spec.DetachPolicy != nil && (awaitsLook(p.Kubelet, p, n) || !kept && awaitsEvidence(f, n)) {
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
		return []Step{{Act: ReadState, Node: n}}
	case n.Unheard && mayReleaseUnheard(f, p, n):
		return []Step{{Act: ReleaseUnheard, Node: n, Intents: n.Leaving}}
	}
	return nil
}

// mayReleaseUnheard reports whether nothing that is read here keeps the leaving intents of a node without an agent.
func mayReleaseUnheard(f *Facts, p handshake.Protocol, n *Node) bool {
	return len(n.Leaving) > 0 && !n.State.Reported && n.held(f) == nil &&
		p.MayReleaseUnheard(n.State, false, false) == handshake.GuardNone
}

// UnheardDue is after how long the leaving intents of a node without an agent may be released; zero if none may.
func UnheardDue(f *Facts, p handshake.Protocol, n *Node) time.Duration {
	if !mayReleaseUnheard(f, p, n) {
		return 0
	}
	return n.UnheardDue
}

// lost: the attachment that the entry speaks of is not there any more, or is on its way out without us.
func lost(n *Node) bool {
	if n.Entry.AttachmentName == "" {
		return false
	}
	a := n.AttachmentOf(n.State.Entry.UID)
	return a == nil || a.Terminating
}

// markDetachingSteps on the agent's release or, failing that, on evidence; otherwise it is waited for. What the
// kubelet lists as in use, or may have listed on a Node that is gone, is not marked: it could not be unlisted, and
// Detaching is final. Beside upstream the agent's release is enough while it covers what the kubelet did.
func markDetachingSteps(f *Facts, p handshake.Protocol, n *Node, uid types.UID) []Step {
	uncovered := Uncovered(f, n)
	if (uncovered || f.Replace && (n.Lists.InUse || n.Lists.Missing)) && !n.evident(uid) {
		return nil
	}
	for _, evidence := range []bool{uncovered || n.declared(uid), true} {
		if (!evidence || n.evident(uid)) && p.MayMarkDetaching(n.State, uid, evidence) == handshake.GuardNone {
			return []Step{{Act: MarkDetaching, Node: n, Attachment: n.AttachmentOf(uid), Evidence: evidence}}
		}
	}
	return nil
}

// continueDetaching: the entry is Detaching; the attachment is deleted, and its entry goes once it is gone.
func continueDetaching(f *Facts, p handshake.Protocol, n, chosen *Node) []Step {
	a := n.AttachmentOf(n.State.Entry.UID)
	switch {
	case ToUnlist(f, p, n):
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
	case n.RestsOnCut() && n.Pods:
		// Access that is cut shows nothing of pods, which took it up meanwhile.
	case n.State.Entry.Forced:
		return []Step{{Act: Delete, Node: n, Attachment: a}}
	case f.Replace:
		if p.MayDeleteUnderKubelet(n.State, a.Attachment) == handshake.GuardNone {
			return []Step{{Act: Delete, Node: n, Attachment: a}}
		}
	case Uncovered(f, n):
		// What the kubelet mounted since is not known: only evidence or a declaration goes on.
	case InTheWay(f, n, a):
		// It is none of what pods use.
		return []Step{{Act: Delete, Node: n, Attachment: a}}
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

// acknowledged reports whether the agent has written to the intent that it no longer publishes it. No agent acts for
// an intent that the kubelet publishes, and nothing waits for it, unless its policy is needed. One that an agent may
// have published is waited for also if it wants no more than Attached by now.
func acknowledged(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if !status.AwaitsRelease(intent) {
		return true
	}
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionPublished)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == volumesv1alpha1.ReasonReleased
}
