/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestWhatIsNotedOfAHealthFitsIntoTheAPIAndHasTheWorstFirst(t *testing.T) {
	h := worstHealth()
	if len(h.Problems) != volumesv1alpha1.MaxHealthProblems {
		t.Fatalf("%d problems are noted, want %d", len(h.Problems), volumesv1alpha1.MaxHealthProblems)
	}
	for _, p := range h.Problems {
		if len(p.Reason) > volumesv1alpha1.MaxHealthReasonLength || len(p.Message) > volumesv1alpha1.MaxHealthMessageLength {
			t.Errorf("a reason of %d bytes and a message of %d are noted, want at most %d and %d", len(p.Reason),
				len(p.Message), volumesv1alpha1.MaxHealthReasonLength, volumesv1alpha1.MaxHealthMessageLength)
		}
	}
	loss := volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthDataLoss, Reason: "Bitrot",
		Message: strings.Repeat("ä", volumesv1alpha1.MaxHealthMessageLength)}
	all := slices.Concat(h.Problems, []volumesv1alpha1.HealthProblem{loss})
	next, changed := NextHealth(h, all, time.Unix(2, 0))
	if !changed || next.Problems[0].Status != loss.Status || !utf8.ValidString(next.Problems[0].Message) {
		t.Errorf("the health after a loss of data: %+v, changed %t; want that loss first", next.Problems[0], changed)
	}
	if again, changed := NextHealth(next, all, time.Unix(3, 0)); changed || again.Since != next.Since {
		t.Errorf("the health after the same problems: since %s, changed %t; want no change", again.Since, changed)
	}
}

func TestTheStorageOfDriversIsHealthyOnceOneHasAnsweredAndNoneReportsAProblem(t *testing.T) {
	can := []string{capabilityStorageHealth}
	problem := []volumesv1alpha1.HealthProblem{{Status: volumesv1alpha1.HealthStorageUnreachable, Reason: "NoPath"}}
	for name, test := range map[string]struct {
		note   func(n *Node)
		value  string
		silent bool
	}{
		"no driver can report": {func(*Node) {}, "", true},
		"none has answered":    {func(*Node) {}, "", false},
		"one has answered":     {func(n *Node) { n.NoteStorageHealth("a", nil, time.Unix(1, 0)) }, "AsExpected", false},
		"another has a problem": {func(n *Node) {
			n.NoteStorageHealth("a", nil, time.Unix(1, 0))
			n.NoteStorageHealth("b", problem, time.Unix(1, 0))
		}, "StorageUnhealthy b: StorageUnreachable NoPath, since 1970-01-01T00:00:01Z", false},
		"an agent of this boot has reported one": {func(n *Node) { n.RecoverStorageHealth(reported("boot", problem)) },
			"StorageUnhealthy a: StorageUnreachable NoPath, since 1970-01-01T00:00:01Z", false},
		"an agent of another boot has": {func(n *Node) { n.RecoverStorageHealth(reported("earlier", problem)) }, "", false},
	} {
		n := NewNode("boot", "v1", volumesv1alpha1.MachineIdentity{}, func() []volumesv1alpha1.NodeDriver {
			drivers := []volumesv1alpha1.NodeDriver{{Name: "a", Capabilities: can}, {Name: "b", Capabilities: can}}
			if test.silent {
				drivers[0].Capabilities, drivers[1].Capabilities = nil, nil
			}
			return drivers
		}, nil)
		test.note(n)
		value, asked := n.storageHealthy(n.registered())
		got := ""
		if value != nil && value.OK {
			got = value.reason
		} else if value != nil {
			got = value.reason + " " + value.Message
		}
		if got != test.value || asked == test.silent {
			t.Errorf("storage where %s: %q, asked %t; want %q, %t", name, got, asked, test.value, !test.silent)
		}
	}
}

func reported(boot string, problems []volumesv1alpha1.HealthProblem) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Status.BootID = boot
	h, _ := NextHealth(nil, problems, time.Unix(1, 0))
	nvs.Status.Drivers = []volumesv1alpha1.NodeDriver{{Name: "a", StorageHealth: h}}
	return nvs
}
