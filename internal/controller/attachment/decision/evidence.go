/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// goneAfter is how long the agent of a Node that does not exist must have been silent before that is evidence.
const GoneAfter = 5 * time.Minute

// ForceAfter is how long the policies of the intents that leave the node ask to wait; false if one of them allows no
// force.
func ForceAfter(leaving []*Intent) (time.Duration, bool) {
	var longest time.Duration
	for _, i := range leaving {
		policy := i.Object.Spec.DetachPolicy
		if policy == nil {
			return 0, false
		}
		longest = max(longest, policy.ForceAfter.Duration)
	}
	return longest, len(leaving) > 0
}

// CutsAccess reports whether the evidence is that the node's access to the volume is cut; e may be nil. It shows
// nothing of the machine, or of the pods on it.
func CutsAccess(e *volumesv1alpha1.DetachEvidence) bool {
	return e != nil && e.Fence != nil && e.Fence.Proves == volumesv1alpha1.FenceAccessCut
}

// RestsOnCut reports whether the volume was forced away because the node's access to it was cut.
func (n *Node) RestsOnCut() bool { return n.Entry != nil && CutsAccess(n.Entry.Evidence) }

// OutageNeeded is for how long the node has to be out of reach before that is evidence; zero when that takes more
// than time.
func (n *Node) OutageNeeded() time.Duration {
	if n.Missing {
		return GoneAfter
	}
	after, _ := ForceAfter(n.Leaving)
	return after
}

// Uncovered reports whether nothing shows what the kubelet has mounted by an attachment beside upstream: the Node is
// gone, or is another one than the agent reported from, and the report does not cover what its kubelet did. Only
// evidence has it detached then. A driver without attach has no attachment that a kubelet waits for.
func Uncovered(f *Facts, n *Node) bool {
	return !f.Replace && (n.Missing || n.Returned) && !n.Covered && (n.Entry == nil || n.Entry.AttachmentName != "")
}

// awaitsEvidence reports whether an attachment that is there waits for evidence by that.
func awaitsEvidence(f *Facts, n *Node) bool {
	a := n.AttachmentOf(n.State.Entry.UID)
	if a == nil {
		a = n.held(f)
	}
	return Uncovered(f, n) && a != nil && !a.Terminating && !n.State.Entry.Forced
}

// DoubtSilence withdraws evidence that rests on a node's silence if another node's agent reports the same attachment
// in use: the machine runs on under another name. Only an administrator's declaration is stronger.
func DoubtSilence(f *Facts) {
	for _, n := range f.Nodes {
		if n.Evidence == nil || n.Evidence.Type == volumesv1alpha1.EvidenceDeclaredByAdministrator {
			continue
		}
		m := f.usedElsewhere(n)
		if m == nil {
			continue
		}
		n.Evidence, n.EvidenceDue, n.RenamedTo = nil, 0, m.Name
	}
}

// usedElsewhere returns a node that uses the volume by what is attached to n; nil when there is none. A use of an
// exclusive volume by no attachment that is known, on a node that has none, is taken for one.
func (f *Facts) usedElsewhere(n *Node) *Node {
	uids := map[types.UID]bool{}
	if n.State.Entry.State != handshake.Absent {
		uids[n.State.Entry.UID] = true
	}
	for i := range n.Attachments {
		uids[n.Attachments[i].UID] = true
	}
	for _, m := range f.Nodes {
		if use := m.State.Use; m != n && use.InUse &&
			(uids[use.UID] || use.UID == "" && f.Exclusive && len(m.Attachments) == 0) {
			return m
		}
	}
	return nil
}

// EvidenceDue is after how long there may be evidence for a node that does not release the volume; zero if nothing
// waits for it.
func EvidenceDue(f *Facts, p handshake.Protocol, n *Node) time.Duration {
	if n.State.Entry.State == handshake.Detaching {
		if n.Evidence == nil && (awaitsLook(f.Replace, p, n) || awaitsEvidence(f, n) || n.awaitsMore(p)) {
			return n.EvidenceDue
		}
		return 0
	}
	if len(n.Wanted) > 0 || n.Evidence != nil {
		return 0
	}
	foreign := f.Replace && n.Missing && len(n.Attachments) > 0
	if n.State.Entry.State == handshake.Absent && n.held(f) == nil && !foreign {
		return 0
	}
	return n.EvidenceDue
}
