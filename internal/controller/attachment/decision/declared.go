/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// DeclarationOf is an administrator's word on the attachment as evidence; nil where there is none. It overrules an
// agent that is heard, and says so.
func DeclarationOf(state handshake.Node, uid types.UID) *volumesv1alpha1.DetachEvidence {
	reason, declared := state.Declares(uid)
	if !declared {
		return nil
	}
	if reason == "" {
		reason = "no reason given"
	}
	if state.Reported && !state.Silent && state.Use.InUse {
		reason += "; the node's agent still reported the volume in use"
	}
	return &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator, Message: reason}
}

// declared reports whether an administrator has declared the attachment released. It is then detached whether an
// intent wants it or not; an intent that wants the volume gets a new attachment.
func (n *Node) declared(uid types.UID) bool {
	_, declared := n.State.Declares(uid)
	return declared
}

// evident reports whether there is evidence in place of the agent's release of the attachment.
func (n *Node) evident(uid types.UID) bool { return n.Evidence != nil || n.declared(uid) }

// declaredAway detaches the attachments of the volume that were declared released and that no entry speaks of.
func declaredAway(f *Facts, p handshake.Protocol, n *Node) []Step {
	for i := range n.Attachments {
		if a := &n.Attachments[i]; n.declared(a.UID) && !a.Terminating && !f.ofAnother(a) {
			return markDetachingSteps(f, p, n, a.UID)
		}
	}
	return nil
}

// restOnEvidence lets a detach that rests on the agent's release rest on a declaration instead and, where it waits for
// the agent to check its node once more, or the release does not cover what the kubelet did, on evidence. One that
// rests on a cut comes to rest on what proves more if the cut was lifted, or if pods took the volume up; if it was
// lifted, also on another cut.
func restOnEvidence(f *Facts, p handshake.Protocol, n *Node) []Step {
	uid := n.Detaching()
	a := n.AttachmentOf(uid)
	more := n.declared(uid) || n.Evidence != nil && !CutsAccess(n.Evidence)
	if n.awaitsMore(p) && (more || n.Evidence != nil && p.CutHolds(n.State) != handshake.GuardNone) {
		return []Step{{Act: MarkDetaching, Node: n, Attachment: a, Evidence: true}}
	}
	if n.State.Entry.Forced || a == nil || a.Terminating {
		return nil
	}
	stuck := n.Evidence != nil && (awaitsLook(f.Replace, p, n) || Uncovered(f, n))
	if !n.declared(uid) && !stuck || p.MayMarkDetaching(n.State, uid, true) != handshake.GuardNone {
		return nil
	}
	return []Step{{Act: MarkDetaching, Node: n, Attachment: a, Evidence: true}}
}

// awaitsMore: the entry rests on a cut, which was lifted, or which shows nothing of the pods that took the volume up.
func (n *Node) awaitsMore(p handshake.Protocol) bool {
	return p.CutHolds(n.State) != handshake.GuardNone || n.RestsOnCut() && n.Pods && n.AttachmentOf(n.Detaching()) != nil
}

// awaitsLook: the entry is Detaching, and its attachment is deleted only after the agent has checked its node again.
func awaitsLook(replace bool, p handshake.Protocol, n *Node) bool {
	a := n.AttachmentOf(n.Detaching())
	return replace && a != nil && !a.Terminating && !n.State.Entry.Forced &&
		p.MayDeleteUnderKubelet(n.State, a.Attachment) != handshake.GuardNone
}
