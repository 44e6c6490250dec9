/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// cutOff is evidence that the node's access is cut.
func cutOff(n *Node) {
	n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced,
		Fence: &volumesv1alpha1.FenceReference{Proves: volumesv1alpha1.FenceAccessCut}}
}

// cutAway: the entry rests on access that is cut.
func cutAway(n *Node) {
	n.Entry = &volumesv1alpha1.NodeAttachment{Evidence: &volumesv1alpha1.DetachEvidence{
		Type: volumesv1alpha1.EvidenceFenced, Fence: &volumesv1alpha1.FenceReference{Proves: volumesv1alpha1.FenceAccessCut}}}
}

// lifted: the entry rests on access that was cut and is not any more.
func lifted(n *Node) { n.State.Entry.Lifted = true }

func TestAccessThatIsCutIsNoOrderToDetach(t *testing.T) {
	checkDecisions(t, []decision{
		{"what nothing wants is detached",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), inUse("1"), cutOff)}}, "MarkDetaching a 1 on evidence"},
		{"what the agent has released is detached on that",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), cutOff)}}, "MarkDetaching a 1"},
		{"what an intent wants stays",
			Facts{Nodes: []*Node{on("a", wanted("i"), attachedAs("1"), inUse("1"), cutOff)}}, ""},
		{"what pods use stays, unlike with a machine that is off",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), inUse("1"), pods, cutOff)}}, ""},
		{"the machine is off",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), inUse("1"), pods, tainted)}}, "MarkDetaching a 1 on evidence"},
	})
}

// TestALiftedCutEndsByProofThatTheMachineIsOff, and by a new fence.
func TestALiftedCutEndsByProofThatTheMachineIsOff(t *testing.T) {
	checkDecisions(t, []decision{
		{"it is declared released", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced, cutAway, pods,
			inUse("1"), va("1", "held", "attached", "name"), declared("1"))}}, "MarkDetaching a 1 on evidence"},
		{"pods took it up, and the machine is off", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced,
			cutAway, pods, inUse("1"), va("1", "held", "attached", "name"), tainted)}}, "MarkDetaching a 1 on evidence"},
		{"the cut holds, and the machine is off", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced,
			cutAway, inUse("1"), va("1", "held", "attached", "name"), tainted)}}, "Delete a 1"},
		{"the machine is off by now", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced, lifted,
			inUse("1"), va("1", "held", "attached", "name"), tainted)}}, "MarkDetaching a 1 on evidence"},
		{"its access is cut again", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced, lifted,
			inUse("1"), va("1", "held", "attached", "name"), cutOff)}}, "MarkDetaching a 1 on evidence"},
	})
}

// TestWhatALiftedCutWaitsForIsLookedAtAgain, as time brings evidence too.
func TestWhatALiftedCutWaitsForIsLookedAtAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Node)
		want   time.Duration
	}{
		"it was lifted":         {together(cutAway, lifted), time.Minute},
		"pods took it up":       {together(cutAway, pods), time.Minute},
		"the cut holds":         {cutAway, 0},
		"a machine that is off": {func(*Node) {}, 0},
	} {
		n := on("a", entry(handshake.Detaching, "1"), forced, inUse("1"), va("1", "held", "attached", "name"), c.change)
		n.EvidenceDue = time.Minute
		if got := EvidenceDue(&Facts{Nodes: []*Node{n}}, handshake.Protocol{}, n); got != c.want {
			t.Errorf("%s: looked at again in %s, want %s", name, got, c.want)
		}
	}
}

// TestWhatIsKnownOfADetachStaysWithItsEvidence where it comes to rest on another one.
func TestWhatIsKnownOfADetachStaysWithItsEvidence(t *testing.T) {
	n := on("a", cutAway)
	n.Entry.AttachmentUID, n.Entry.State, n.Entry.DetachedTime = "1", volumesv1alpha1.AttachmentDetaching, &metav1.Time{}
	n.Entry.Protocol.UnlistedBootID = "boot-1"
	off := volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
	e := DetachingEntry(&Facts{}, n.Entry, "1", "", off)
	if e.DetachedTime == nil || e.Protocol.UnlistedBootID != "boot-1" || e.Evidence.Type != off.Type {
		t.Errorf("entry %+v, want the other evidence alone", e)
	}
}

// TestWhatIsForcedAwayFromALiveMachineKeepsItsIntentUntilTheAgentReports: deleted means released.
func TestWhatIsForcedAwayFromALiveMachineKeepsItsIntentUntilTheAgentReports(t *testing.T) {
	n := on("a", entry(handshake.Detaching, "1"), forced, lifted, inUse("1"), leaving("i"),
		va("1", "held", "attached", "name"))
	n.Live = true
	for _, s := range Decide(&Facts{Nodes: []*Node{n}}, handshake.Protocol{}) {
		if s.Act == Release {
			t.Error("the intent is released, want that it waits: the cut was lifted and the volume is in use")
		}
	}
}

// TestAPodThatTookUpAVolumeKeepsItsAttachment, as it does where the agent has released the volume.
func TestAPodThatTookUpAVolumeKeepsItsAttachment(t *testing.T) {
	checkDecisions(t, []decision{
		{"released", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), pods, va("1", "held", "attached"))}}, ""},
		{"cut", Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"), forced, cutAway, inUse("1"), pods,
			va("1", "held", "attached", "name"))}}, ""},
	})
}

func TestAVolumeWhoseCutWasLiftedIsNotHandedOver(t *testing.T) {
	gone := together(entry(handshake.Detaching, "1"), forced, detached)
	checkDecisions(t, []decision{
		{"the cut holds", Facts{Exclusive: true, Nodes: []*Node{on("a", gone, inUse("1")), on("b", wanted("i"))}},
			"Attach b"},
		{"it was lifted",
			Facts{Exclusive: true, Nodes: []*Node{on("a", gone, inUse("1"), lifted), on("b", wanted("i"))}}, ""},
		{"and the agent has reported", Facts{Exclusive: true, Nodes: []*Node{on("a", gone, lifted), on("b", wanted("i"))}},
			"Forget a"},
		{"and it was declared released",
			Facts{Exclusive: true, Nodes: []*Node{on("a", gone, inUse("1"), lifted, declared("1")), on("b", wanted("i"))}},
			"Attach b"},
	})
}

func TestWhoWaitsForALiftedCutIsShownHowThatEnds(t *testing.T) {
	n := on("b")
	n.WaitFor(on("a"), handshake.GuardCutHolds)
	if n.Wait == nil || n.Wait.Holder != nil || n.Wait.Reason != volumesv1alpha1.ReasonVolumeInUse ||
		!strings.Contains(n.Wait.Message, "declares") {
		t.Errorf("wait of node b: %+v; want what ends it", n.Wait)
	}
}

func TestOnlyAFenceOfAccessCutsIt(t *testing.T) {
	if CutsAccess(nil) || CutsAccess(&volumesv1alpha1.DetachEvidence{}) || CutsAccess(&volumesv1alpha1.DetachEvidence{
		Fence: &volumesv1alpha1.FenceReference{Proves: volumesv1alpha1.FencePowerOff}}) {
		t.Error("evidence without a fence of access cuts it, want that it does not")
	}
}
