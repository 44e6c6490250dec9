/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestADeclarationIsEvidence(t *testing.T) {
	state := handshake.Node{Declared: []handshake.Declaration{{UID: "1", Reason: "scrapped"}, {UID: "2"}}}
	for uid, want := range map[string]string{"1": "scrapped", "2": "no reason given", "3": ""} {
		e := DeclarationOf(state, types.UID(uid))
		if (e != nil) != (want != "") || e != nil &&
			(e.Message != want || e.Type != volumesv1alpha1.EvidenceDeclaredByAdministrator) {
			t.Errorf("evidence for attachment %s: %+v, want one with message %q, or none if that is empty", uid, e, want)
		}
	}
}

func TestWhatWasDeclaredReleasedIsMarkedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		node    *Node
		replace bool
		want    bool
	}{
		"it is being deleted": {
			on("a", va("1", "terminating"), entry(handshake.Detaching, "1"), declared("1")), false, false,
		},
		"another use keeps it": {
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), inUse("2"), declared("1")), false, false,
		},
		"it was forced already": {
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, declared("1")), false, false,
		},
		"its attachment is gone": {on("a", entry(handshake.Detaching, "1"), declared("1")), false, false},
		"it is marked": {
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), declared("1")), false, true,
		},
		"it waits for a look, and there is evidence": {
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), true, true,
		},
		"it waits for no look": {
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted, lookedSince, unlistedBefore), true, false,
		},
	} {
		steps := restOnEvidence(&Facts{Volume: "v", Replace: test.replace, Nodes: []*Node{test.node}},
			handshake.Protocol{Kubelet: test.replace}, test.node)
		if (len(steps) == 1) != test.want || test.want &&
			(steps[0].Act != MarkDetaching || !steps[0].Evidence || steps[0].Attachment == nil ||
				steps[0].Attachment.UID != "1" || steps[0].Node != test.node) {
			t.Errorf("%s: steps %+v, want MarkDetaching on evidence for attachment 1: %t", name, steps, test.want)
		}
	}
	for name, test := range map[string]struct {
		node    *Node
		replace bool
		want    bool
	}{
		"beside upstream":        {on("a", va("1", "held"), entry(handshake.Detaching, "1")), false, false},
		"in place of upstream":   {on("a", va("1", "held"), entry(handshake.Detaching, "1")), true, true},
		"its attachment is gone": {on("a", entry(handshake.Detaching, "1")), true, false},
		"it is being deleted":    {on("a", va("1", "terminating"), entry(handshake.Detaching, "1")), true, false},
		"it was forced":          {on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced), true, false},
	} {
		if got := awaitsLook(test.replace, handshake.Protocol{Kubelet: test.replace}, test.node); got != test.want {
			t.Errorf("%s: awaits a check of the agent %t, want %t", name, got, test.want)
		}
	}
}
