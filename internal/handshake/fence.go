/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// MaxFences of a node are recorded.
const MaxFences = 16

// RecordFences is the record of a node's fences after records; those in held hold now. heard is
// what the state and the agent's Lease show, the Lease read live after the fences. A fence is a claim about the machine
// as an out-of-service taint is one, so it is recorded and contradicted alike. A new one displaces none. One of an
// object that was contradicted stays so when its source is changed and says that it proves something else.
func RecordFences(
	records []volumesv1alpha1.FenceObservation, held []volumesv1alpha1.FenceReference, heard Heard, now metav1.Time,
) []volumesv1alpha1.FenceObservation {
	var next []volumesv1alpha1.FenceObservation
	recorded := map[volumesv1alpha1.FenceReference]bool{}
	for _, r := range records {
		if !slices.Contains(held, r.FenceReference) {
			continue
		}
		r = *r.DeepCopy()
		if r.Contradicted == nil && heard.since(r.LastRenewal, r.LastSession) {
			r.Contradicted = &now
		}
		next, recorded[r.FenceReference] = append(next, r), true
	}
	for _, f := range held {
		if !recorded[f] && len(next) < MaxFences {
			next = append(next, volumesv1alpha1.FenceObservation{FenceReference: f, Observed: now,
				LastRenewal: heard.Renewal, LastSession: heard.Session})
		}
	}
	for i := range next {
		if next[i].Contradicted == nil {
			next[i].Contradicted = contradictedIn(records, next[i].FenceReference)
		}
	}
	return next
}

// contradictedIn is when a fence of the same source and object was contradicted, whatever it proves; nil if none was.
func contradictedIn(records []volumesv1alpha1.FenceObservation, f volumesv1alpha1.FenceReference) *metav1.Time {
	for _, r := range records {
		if r.Proves = f.Proves; r.Contradicted != nil && r.FenceReference == f {
			return r.Contradicted.DeepCopy()
		}
	}
	return nil
}

// FenceAssertion is what a recorded fence asserts, given what was heard of the agent.
func FenceAssertion(record volumesv1alpha1.FenceObservation, heard Heard) Assertion {
	return Assertion{Recorded: true, Contradicted: record.Contradicted != nil ||
		heard.since(record.LastRenewal, record.LastSession)}
}

// CutOf returns the fence that cuts the access of what was forced away, as long as only that fence keeps it from the
// volume: until the node has reported that nothing is left, the fence was seen to be lifted, or the driver, which is
// known to cut the access itself, has unpublished the volume. It is nil for any other entry.
func (p Protocol) CutOf(
	n Node, entry *volumesv1alpha1.NodeAttachment, driverCuts bool,
) *volumesv1alpha1.FenceReference {
	if entry == nil || entry.Evidence == nil || !cutsAccess(entry.Evidence) || entry.Evidence.Unprotected ||
		driverCuts && n.Entry.Detached {
		return nil
	}
	n.Entry.Lifted = true
	if p.CutHolds(n) == GuardNone {
		return nil
	}
	return entry.Evidence.Fence
}
