/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Departure is how a manager saw a Node go.
type Departure struct {
	NodeUID types.UID
	// OutOfReach: neither the kubelet nor the agent was heard any more.
	OutOfReach bool
	// Renewal is the last one of the agent's Lease that had been seen then; empty if none had.
	Renewal string
	// Session is that of the agent's last report that had been seen then; 0 if none had.
	Session int64
}

// RecordAbsence is the record of a Node that is absent, after record, which may be nil. seen is the last departure of
// the Node that this process saw; nil for none. Only a departure whose machine was out of reach makes an absence a
// claim about the machine, as an out-of-service taint is one: the silence that follows shows nothing by itself, because
// Kubernetes deletes the agent's pod where the Node is absent. heard is as for RecordTaint. restored: what is recorded
// may be of the past.
func RecordAbsence(
	record *volumesv1alpha1.AbsenceObservation, seen *Departure, heard Heard, restored bool, now metav1.Time,
) *volumesv1alpha1.AbsenceObservation {
	if seen != nil && (record == nil || record.NodeUID != seen.NodeUID) {
		if !seen.OutOfReach {
			return nil
		}
		record = &volumesv1alpha1.AbsenceObservation{Observed: now, NodeUID: seen.NodeUID,
			LastRenewal: seen.Renewal, LastSession: seen.Session}
	}
	if record == nil || record.Contradicted != nil ||
		!restored && !heard.since(record.LastRenewal, record.LastSession) {
		return record
	}
	contradicted := record.DeepCopy()
	contradicted.Contradicted = &now
	return contradicted
}

// AbsenceAssertion is what the absence of the Node of nvs asserts, given the last renewal of the agent's Lease, empty
// where there is none. Where no agent has ever run time is enough, as for Kubernetes: only the kubelet can have mounted
// something there, and it unmounts that once the pods are deleted. nvs may be nil.
func AbsenceAssertion(nvs *volumesv1alpha1.NodeVolumeState, renewal string) Assertion {
	if renewal == "" && (nvs == nil || blank(nvs)) {
		return Lapsed
	}
	if nvs == nil || nvs.Status.Node.Absence == nil {
		return Assertion{}
	}
	record, heard := nvs.Status.Node.Absence, LastHeard(nvs, renewal)
	return Assertion{Recorded: true, Contradicted: record.Contradicted != nil ||
		heard.since(record.LastRenewal, record.LastSession)}
}
