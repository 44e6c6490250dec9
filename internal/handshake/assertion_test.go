/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestWhatIsAssertedOfANodeCountsOnlyWhileItsAgentIsSilentAndWasNotHeardSince(t *testing.T) {
	var p Protocol
	silent, taint := Node{Exists: true, Silent: true}, Assertion{Recorded: true}
	check(t, []verdict{
		{"a taint on a silent node", p.MayRelyOn(silent, taint), GuardNone},
		{"time without a sign of the agent", p.MayRelyOn(silent, Lapsed), GuardNone},
		{"a taint while the agent is heard", p.MayRelyOn(free, taint), GuardAgentSilent},
		{"time while the agent is heard", p.MayRelyOn(free, Lapsed), GuardAgentSilent},
		{"a taint that is not recorded", p.MayRelyOn(silent, Assertion{}), GuardContradicted},
		{"one that was contradicted", p.MayRelyOn(silent, Assertion{Recorded: true, Contradicted: true}), GuardContradicted},
	})
}

func TestARecordIsOfOneTaintAndIsContradictedForGood(t *testing.T) {
	now, added := metav1.Unix(1000, 0), metav1.Unix(500, 0)
	taint := &corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "down", Effect: corev1.TaintEffectNoExecute}
	with := func(change func(*corev1.Taint)) *corev1.Taint {
		other := taint.DeepCopy()
		change(other)
		return other
	}
	first := RecordTaint(nil, taint, Heard{Renewal: "a"}, now)
	void := RecordTaint(first, taint, Heard{Renewal: "b"}, now)
	timed := with(func(t *corev1.Taint) { t.TimeAdded = &added })
	if got := RecordTaint(nil, timed, Heard{Renewal: "a"}, now); got.TimeAdded == nil || !got.TimeAdded.Equal(&added) {
		t.Errorf("record of a taint that was added at %s: %v, want that time", added, got.TimeAdded)
	}
	for _, c := range []struct {
		name    string
		record  *volumesv1alpha1.OutOfServiceObservation
		taint   *corev1.Taint
		renewal string
		// same: the record stays as it is. none: there is none any more. void: it is contradicted.
		same, none, void bool
		counts           bool
	}{
		{"first seen", nil, taint, "a", false, false, false, false},
		{"nothing was heard since", first, taint, "a", true, false, false, true},
		{"the Lease was deleted", first, taint, "", true, false, false, true},
		{"heard since", first, taint, "b", false, false, true, false},
		{"heard again", void, taint, "c", true, false, true, false},
		{"as silent as in the beginning", void, taint, "a", true, false, true, false},
		{"the taint is gone", void, nil, "c", false, true, false, false},
		{"another value", void, with(func(t *corev1.Taint) { t.Value = "off" }), "c", false, false, false, false},
		{"another effect", void, with(func(t *corev1.Taint) { t.Effect = corev1.TaintEffectNoSchedule }), "c", false, false,
			false, false},
		{"added at another time", void, with(func(t *corev1.Taint) { t.TimeAdded = &added }), "c", false, false, false,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := RecordTaint(c.record, c.taint, Heard{Renewal: c.renewal}, now)
			if (got == nil) != c.none || (got == c.record) != c.same || got != nil && (got.Contradicted != nil) != c.void {
				t.Errorf("record after %+v: %+v; want the same %t, none %t, contradicted %t", c.record, got, c.same, c.none, c.void)
			}
			said := TaintAssertion(c.record, c.taint, Heard{Renewal: c.renewal})
			if counts := said == (Assertion{Recorded: true}); counts != c.counts {
				t.Errorf("what the taint asserts: %+v, want that it counts: %t", said, c.counts)
			}
			if got != nil && !c.same && !c.void && got.LastRenewal != c.renewal {
				t.Errorf("last renewal in the record: %q, want %q", got.LastRenewal, c.renewal)
			}
		})
	}
	if !ptr.Equal(void.Contradicted, &now) || first.Contradicted != nil {
		t.Errorf("contradicted at %v, and %v in the record before; want %v and none", void.Contradicted, first.Contradicted,
			now)
	}
}

func TestAnAgentIsSilentWhileTheMarkOfTheManagerStands(t *testing.T) {
	for reason, want := range map[string]bool{
		volumesv1alpha1.ReasonAgentUnreachable: true, volumesv1alpha1.ReasonAgentStopped: false,
		volumesv1alpha1.ReasonReady: false,
	} {
		nvs := volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Reason: reason}}
		})
		if got := NodeOf(nvs, volume).Silent; got != want {
			t.Errorf("agent of a node state with reason %s is silent: %t, want %t", reason, got, want)
		}
	}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable}}}}
	if OutOfService(nil) != nil || OutOfService(node) != nil {
		t.Error("a Node without the out-of-service taint has one, want none")
	}
}
