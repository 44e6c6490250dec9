/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestAnAbsenceIsAClaimOnlyIfTheNodeWasSeenToGoOutOfReach(t *testing.T) {
	now, heard := metav1.Unix(1000, 0), Heard{Renewal: "a", Session: 7}
	for name, seen := range map[string]*Departure{"not seen": nil, "in reach": {NodeUID: "n", Renewal: "a"}} {
		if record := RecordAbsence(nil, seen, heard, false, now); record != nil {
			t.Errorf("record of a Node that went %s: %+v, want none", name, record)
		}
	}
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	nvs.Status.Protocol = volumesv1alpha1.AgentProtocol{ObservedUID: "u", Session: 7}
	asserts := func(what, renewal string, want Assertion) {
		t.Helper()
		if got := AbsenceAssertion(nvs, renewal); got != want {
			t.Errorf("%s: the absence asserts %+v, want %+v", what, got, want)
		}
	}
	asserts("not recorded", "a", Assertion{})
	asserts("not recorded, and the Lease was deleted", "", Assertion{})
	record := RecordAbsence(nil, &Departure{NodeUID: "n", OutOfReach: true, Renewal: "a", Session: 7}, heard, false, now)
	nvs.Status.Node.Absence = record
	asserts("recorded", "a", Assertion{Recorded: true})
	asserts("the Lease was deleted", "", Assertion{Recorded: true})
	asserts("the Lease was renewed", "b", Assertion{Recorded: true, Contradicted: true})
	nvs.Status.Protocol.Session = 8
	asserts("another session has begun", "a", Assertion{Recorded: true, Contradicted: true})
	contradicted := RecordAbsence(record, nil, Heard{Renewal: "b", Session: 7}, false, now)
	nvs.Status.Node.Absence, nvs.Status.Protocol.Session = contradicted, 7
	asserts("contradicted once", "a", Assertion{Recorded: true, Contradicted: true})
}

func TestWhatBecomesOfTheRecordOfAnAbsence(t *testing.T) {
	now, heard := metav1.Unix(1000, 0), Heard{Renewal: "a", Session: 7}
	record := volumesv1alpha1.AbsenceObservation{Observed: metav1.Unix(1, 0), NodeUID: "n", LastRenewal: "a",
		LastSession: 7}
	for _, c := range []struct {
		name     string
		seen     *Departure
		heard    Heard
		restored bool
		// node and renewal of the record after; empty where it ends.
		node, renewal string
		void          bool
	}{
		{"nothing is heard", nil, heard, false, "n", "a", false},
		{"this process saw it too", &Departure{NodeUID: "n", OutOfReach: true, Renewal: "b"}, heard, false, "n", "a", false},
		{"the Lease was renewed", nil, Heard{Renewal: "b", Session: 7}, false, "n", "a", true},
		{"an agent reports a restore", nil, heard, true, "n", "a", true},
		{"another Node of that name went, in reach", &Departure{NodeUID: "m", Renewal: "a"}, heard, false, "", "", false},
		{"another Node of that name went, out of reach", &Departure{NodeUID: "m", OutOfReach: true, Renewal: "b", Session: 8},
			Heard{Renewal: "b", Session: 8}, false, "m", "b", false},
		{"the agent is heard before that is recorded", &Departure{NodeUID: "m", OutOfReach: true, Renewal: "b", Session: 8},
			Heard{Renewal: "c", Session: 8}, false, "m", "b", true},
		{"a session begins before that is recorded", &Departure{NodeUID: "m", OutOfReach: true, Renewal: "a", Session: 7},
			Heard{Renewal: "a", Session: 8}, false, "m", "a", true},
		{"the process knew of no session", &Departure{NodeUID: "m", OutOfReach: true, Renewal: "a"}, heard, false, "m", "a",
			true},
		{"the process knew nothing of the agent", &Departure{NodeUID: "m", OutOfReach: true}, heard, false, "m", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := record
			next := RecordAbsence(&before, c.seen, c.heard, c.restored, now)
			if before != record {
				t.Errorf("the record itself became %+v", before)
			}
			if next == nil {
				next = &volumesv1alpha1.AbsenceObservation{}
			}
			if string(next.NodeUID) != c.node || next.LastRenewal != c.renewal || (next.Contradicted != nil) != c.void {
				t.Errorf("record: %+v, want of node %q, renewal %q, contradicted %t", next, c.node, c.renewal, c.void)
			}
		})
	}
}

func TestWhereNoAgentEverRanTimeIsEnoughForAnAbsentNode(t *testing.T) {
	blank := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	if got := AbsenceAssertion(blank, ""); got != Lapsed {
		t.Errorf("a state that no agent has written to, without a Lease: %+v, want %+v", got, Lapsed)
	}
	if got := AbsenceAssertion(blank, "a"); got != (Assertion{}) {
		t.Errorf("a state that no agent has written to, whose agent has a Lease: %+v, want nothing asserted", got)
	}
}
