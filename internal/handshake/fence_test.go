/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestAFenceIsRecordedOnceAndContradictedForGood(t *testing.T) {
	now := metav1.Unix(1000, 0)
	fence := volumesv1alpha1.FenceReference{Source: "bmc", Namespace: "hosts", Name: "h", UID: "1",
		Proves: volumesv1alpha1.FencePowerOff}
	with := func(change func(*volumesv1alpha1.FenceReference)) []volumesv1alpha1.FenceReference {
		other := fence
		change(&other)
		return []volumesv1alpha1.FenceReference{other}
	}
	held := []volumesv1alpha1.FenceReference{fence}
	first := RecordFences(nil, held, Heard{Renewal: "a"}, now)
	void := RecordFences(first, held, Heard{Renewal: "b"}, metav1.Unix(2000, 0))
	for _, c := range []struct {
		name    string
		records []volumesv1alpha1.FenceObservation
		held    []volumesv1alpha1.FenceReference
		renewal string
		// recorded: there is one record. begins: it begins now. void: it is contradicted.
		recorded, begins, void bool
	}{
		{"first seen", nil, held, "a", true, true, false},
		{"nothing was heard since", first, held, "a", true, false, false},
		{"the Lease was deleted", first, held, "", true, false, false},
		{"heard since", first, held, "b", true, false, true},
		{"heard again", void, held, "c", true, false, true},
		{"as silent as in the beginning", void, held, "a", true, false, true},
		{"lifted", void, nil, "c", false, false, false},
		{"another object of the name", void, with(func(f *volumesv1alpha1.FenceReference) { f.UID = "2" }), "c", true, true,
			false},
		{"its source says that it proves something else", void, with(func(f *volumesv1alpha1.FenceReference) {
			f.Proves = volumesv1alpha1.FenceInstanceGone
		}), "c", true, true, true},
		{"another source has the object", void, with(func(f *volumesv1alpha1.FenceReference) { f.Source = "ipmi" }), "c",
			true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := RecordFences(c.records, c.held, Heard{Renewal: c.renewal}, metav1.Unix(3000, 0))
			if len(got) == 1 != c.recorded {
				t.Fatalf("%d records, want one: %t", len(got), c.recorded)
			}
			if !c.recorded {
				return
			}
			begins := got[0].Observed.Unix() == 3000
			if begins != c.begins || (got[0].Contradicted != nil) != c.void || begins && got[0].LastRenewal != c.renewal {
				t.Errorf("record %+v, want a new one %t, contradicted %t", got[0], c.begins, c.void)
			}
			want := Assertion{Recorded: true, Contradicted: c.void}
			if said := FenceAssertion(got[0], Heard{Renewal: c.renewal}); said != want {
				t.Errorf("the fence asserts %+v, want %+v", said, want)
			}
		})
	}
}

func TestNoMoreFencesAreRecordedThanTheStateMayHaveAndNoneIsDisplaced(t *testing.T) {
	var held []volumesv1alpha1.FenceReference
	for i := range 2 * MaxFences {
		held = append(held, volumesv1alpha1.FenceReference{Source: "bmc", Name: fmt.Sprint("h", i)})
	}
	last := held[len(held)-1:]
	first := RecordFences(nil, last, Heard{Renewal: "a"}, metav1.Now())
	got := RecordFences(first, held, Heard{Renewal: "b"}, metav1.Now())
	if len(got) != MaxFences || got[0].FenceReference != last[0] || got[0].Contradicted == nil {
		t.Errorf("%d records, the first of them %+v; want %d, and first the one that was contradicted", len(got), got[0],
			MaxFences)
	}
}
