/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// TestASessionThatBeginsContradictsWhatIsAssertedOfTheMachineForGood, before the agent renews its Lease and also if it
// never does.
func TestASessionThatBeginsContradictsWhatIsAssertedOfTheMachineForGood(t *testing.T) {
	now := metav1.Unix(1000, 0)
	before, begun := Heard{Renewal: "a", Session: 7}, Heard{Renewal: "a", Session: 9}
	taint := &corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
	held := []volumesv1alpha1.FenceReference{{Source: "bmc", Name: "host"}}
	record, records := RecordTaint(nil, taint, before, now), RecordFences(nil, held, before, now)
	counts := Assertion{Recorded: true}
	if said := TaintAssertion(record, taint, before); said != counts {
		t.Errorf("the taint asserts %+v while nothing was heard, want %+v", said, counts)
	}
	if said := FenceAssertion(records[0], before); said != counts {
		t.Errorf("the fence asserts %+v while nothing was heard, want %+v", said, counts)
	}
	if said := TaintAssertion(record, taint, begun); !said.Contradicted {
		t.Errorf("the taint asserts %+v beside another session, want it contradicted", said)
	}
	if said := FenceAssertion(records[0], begun); !said.Contradicted {
		t.Errorf("the fence asserts %+v beside another session, want it contradicted", said)
	}
	record, records = RecordTaint(record, taint, begun, now), RecordFences(records, held, begun, now)
	if record.Contradicted == nil || records[0].Contradicted == nil {
		t.Errorf("records after another session: %+v, %+v; want them contradicted", record, records[0])
	}
}
