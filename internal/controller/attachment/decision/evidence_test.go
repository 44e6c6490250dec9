/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestTheLongestPolicyOfTheIntentsThatLeaveDecidesAndEachMustHaveOne(t *testing.T) {
	with := func(after ...time.Duration) (leaving []*Intent) {
		for i, d := range after {
			intent := intentNamed(fmt.Sprintf("i%d*", i))
			if d > 0 {
				intent.Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: d}}
			}
			leaving = append(leaving, intent)
		}
		return leaving
	}
	for _, c := range []struct {
		name    string
		leaving []*Intent
		want    time.Duration
		allowed bool
	}{
		{"nobody leaves", nil, 0, false},
		{"one with a policy", with(time.Minute), time.Minute, true},
		{"one without", with(0), 0, false},
		{"the longest is the first", with(2*time.Minute, time.Minute), 2 * time.Minute, true},
		{"the longest is the last", with(time.Minute, 2*time.Minute), 2 * time.Minute, true},
		{"the first has none", with(0, time.Minute), 0, false},
		{"the last has none", with(time.Minute, 0), 0, false},
	} {
		after, allowed := ForceAfter(c.leaving)
		if allowed != c.allowed || allowed && after != c.want {
			t.Errorf("leaving intents (%s): force after %s, allowed %t; want %s, %t", c.name, after, allowed, c.want, c.allowed)
		}
	}
}

func TestANodeCountsAsGoneOnlyAfterALongTimeWhateverThePolicies(t *testing.T) {
	n := forcible("a")
	if got := n.OutageNeeded(); got != 6*time.Minute {
		t.Errorf("outage needed of node a, whose Node exists: %s, want %s", got, 6*time.Minute)
	}
	n.Missing = true
	if got := n.OutageNeeded(); got != GoneAfter {
		t.Errorf("outage needed of node a, whose Node is gone: %s, want %s", got, GoneAfter)
	}
}

func TestWhenANodeThatDoesNotReleaseMayBecomeEvidence(t *testing.T) {
	due := func(n *Node) { n.EvidenceDue = time.Minute }
	missing := func(n *Node) { n.Missing = true }
	kubelet := handshake.Protocol{Kubelet: true}
	for _, c := range []struct {
		name    string
		replace bool
		node    *Node
		due     bool
	}{
		{"attached, wanted by nobody", false, on("a", va("1", "held"), entry(handshake.Attached, "1"), due), true},
		{"attached and wanted", false, on("a", wanted("i"), va("1", "held"), entry(handshake.Attached, "1"), due), false},
		{"there is evidence already", false, on("a", va("1", "held"), entry(handshake.Attached, "1"), tainted, due), false},
		{"attached, and its attachment is gone", false, on("a", entry(handshake.Attached, "1"), due), true},
		{"held without an entry", false, on("a", va("1", "held"), due), true},
		{"an attachment of others", false, on("a", va("1"), due), false},
		{"an attachment of others to a Node that is gone", false, on("a", va("1"), missing, due), false},
		{"nothing on a Node that is gone", true, on("a", missing, due), false},
		{"in Replace an attachment of others", true, on("a", va("1"), due), false},
		{"in Replace an attachment of others to a Node that is gone", true, on("a", va("1"), missing, due), true},
		{"detaching, which waits for the driver", false,
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), due), false},
		{"detaching from a Node that is gone, whose kubelet may have mounted the volume", false,
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), missing, due), true},
		{"the same, while the driver detaches", false,
			on("a", va("1", "terminating"), entry(handshake.Detaching, "1"), missing, due), false},
		{"the same by force", false,
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, missing, due), false},
		{"detaching from a Node that is gone, whose kubelet had not mounted the volume", false,
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), missing, covered, due), false},
		{"in Replace, while the agent has to check first", true,
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), due), true},
		{"the same with evidence", true, on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted, due), false},
		{"in Replace, while the driver detaches", true,
			on("a", va("1", "terminating"), entry(handshake.Detaching, "1"), due), false},
	} {
		want := time.Duration(0)
		if c.due {
			want = time.Minute
		}
		if got := EvidenceDue(&Facts{Replace: c.replace}, kubelet, c.node); got != want {
			t.Errorf("%s: evidence for node %s is due in %s, expected %s", c.name, c.node.Name, got, want)
		}
	}
}

func TestSilenceIsNoEvidenceWhileAnotherNodeUsesTheSameAttachment(t *testing.T) {
	silent := func(n *Node) {
		n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone}
		n.EvidenceDue = time.Minute
	}
	declared := func(n *Node) {
		n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator}
	}
	for _, c := range []struct {
		name      string
		exclusive bool
		a, b      *Node
		renamed   bool
	}{
		{"the entry's attachment", false, on("a", entry(handshake.Attached, "1"), silent), on("b", inUse("1")), true},
		{"an attachment without an entry", false, on("a", va("1"), silent), on("b", inUse("1")), true},
		{"another attachment", false, on("a", entry(handshake.Attached, "1"), va("1"), silent), on("b", inUse("2")), false},
		{"no longer in use", false, on("a", entry(handshake.Attached, "1"), silent), on("b"), false},
		{"no entry, no attachment, a use of none", false, on("a", silent), on("b", inUse("")), false},
		{"a use of no known attachment", false, on("a", entry(handshake.Attached, "1"), silent), on("b", inUse("")), false},
		{"the same of an exclusive volume", true, on("a", entry(handshake.Attached, "1"), silent), on("b", inUse("")), true},
		{"the same on a node with an attachment of its own", true,
			on("a", entry(handshake.Attached, "1"), silent), on("b", va("2"), inUse("")), false},
		{"another attachment of an exclusive volume", true,
			on("a", entry(handshake.Attached, "1"), silent), on("b", inUse("2")), false},
		{"an administrator has declared it", false,
			on("a", entry(handshake.Attached, "1"), declared), on("b", inUse("1")), false},
		{"no evidence", false, on("a", entry(handshake.Attached, "1")), on("b", inUse("1")), false},
	} {
		before := c.a.Evidence
		DoubtSilence(&Facts{Exclusive: c.exclusive, Nodes: []*Node{c.a, c.b}})
		if c.renamed && (c.a.Evidence != nil || c.a.EvidenceDue != 0 || c.a.RenamedTo != "b") {
			t.Errorf("%s: node a has evidence %+v, due in %s, renamed to %q; expected none, renamed to b",
				c.name, c.a.Evidence, c.a.EvidenceDue, c.a.RenamedTo)
		}
		if !c.renamed && (c.a.Evidence != before || c.a.RenamedTo != "") {
			t.Errorf("%s: node a has evidence %+v, renamed to %q; expected %+v as before",
				c.name, c.a.Evidence, c.a.RenamedTo, before)
		}
	}
}

func TestANodesOwnUseIsNoUseElsewhere(t *testing.T) {
	n := on("a", entry(handshake.Attached, "1"), inUse("1"))
	f := &Facts{Nodes: []*Node{n}}
	if m := f.usedElsewhere(n); m != nil {
		t.Errorf("volume of node a is used elsewhere, on node %s, want nowhere else", m.Name)
	}
	absent := on("a")
	f = &Facts{Nodes: []*Node{absent, on("b", inUse(""))}}
	if m := f.usedElsewhere(absent); m != nil {
		t.Errorf("volume without an entry on node a is used elsewhere, on node %s, want nowhere else", m.Name)
	}
}
