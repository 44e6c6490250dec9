/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// decided is what is decided on these facts, in words.
func decided(f Facts, p handshake.Protocol) string {
	f.Volume, f.Driver, f.VolumeHandle, f.AttachRequired = "v", "d", "h", true
	var steps []string
	for _, s := range electAndDecide(&f, p) {
		steps = append(steps, describeStep(s))
	}
	return strings.Join(steps, ", ")
}

type decision struct {
	name  string
	facts Facts
	want  string
}

func checkDecisions(t *testing.T, decisions []decision) {
	t.Helper()
	for _, c := range decisions {
		t.Run(c.name, func(t *testing.T) {
			if have := decided(c.facts, handshake.Protocol{Kubelet: c.facts.Replace}); have != c.want {
				t.Errorf("steps for volume v: %q, want %q", have, c.want)
			}
		})
	}
}

func together(options ...func(*Node)) func(*Node) {
	return func(n *Node) {
		for _, o := range options {
			o(n)
		}
	}
}

// attachedAs is a volume that is attached to the node, and confirmed.
func attachedAs(uid types.UID) func(*Node) {
	return together(va(uid, "held", "attached"), entry(handshake.Attached, uid))
}

// sharedName is an attachment of others under the name that upstream uses.
func sharedName(uid types.UID, how ...string) func(*Node) {
	return func(n *Node) {
		va(uid, how...)(n)
		n.Attachments[len(n.Attachments)-1].Name = volume.AttachmentName("d", "h", n.Name)
	}
}

// attachless is a volume whose driver knows no attach.
func attachless(n *Node) { n.Entry.AttachmentName = "" }

// byController: the kubelet leaves attaching to a controller.
func byController(n *Node) { n.Managed = true }

func listedAttached(n *Node) { n.Lists.Attached = true }

func listedInUse(n *Node) { n.Lists.InUse = true }

func kubeletUses(n *Node) { n.KubeletUses = true }

func unlistedBefore(n *Node) { n.Entry.Protocol.UnlistedGeneration = 2 }

func lookedSince(n *Node) { n.State.Looked = true }

// nodeGone is a Node that was deleted.
func nodeGone(n *Node) { n.Missing, n.Lists.Missing = true, true }

// covered: its kubelet had not mounted what its agent reported as not in use.
func covered(n *Node) { n.Covered = true }

// cameBack: the agent was not heard since the Node did.
func cameBack(n *Node) { n.Returned = true }

// stateless is a node without a NodeVolumeState.
func stateless(n *Node) { n.State = handshake.Node{} }

// acknowledges: the agent has answered on the leaving intents that it publishes them no longer.
func acknowledges(n *Node) {
	for _, i := range n.Leaving {
		i.Object.Status.Conditions = []metav1.Condition{{
			Type: volumesv1alpha1.ConditionPublished, Status: metav1.ConditionFalse, Reason: volumesv1alpha1.ReasonReleased,
		}}
	}
}

// withPolicy: time alone may force the detach for the leaving intents.
func withPolicy(n *Node) {
	for _, i := range n.Leaving {
		i.Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Hour}}
	}
}

var unreadable = &exclusive.UnreadableError{ConfigMap: "hawser/locks", Err: errors.New("no JSON")}

func TestWhatStaysOnANode(t *testing.T) {
	usesIt := on("b", inUse("2"))
	checkDecisions(t, []decision{
		{"what pods use stays, though no intent wants it yet",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), pods)}}, ""},
		{"but not on a node that evidence speaks against",
			Facts{Nodes: []*Node{on("a", attachedAs("1"), inUse("1"), pods, tainted)}}, "MarkDetaching a 1 on evidence"},

		{"what an exclusive volume's node wants but does not use gives way to a node that uses it, as after a restore",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), attachedAs("1")), usesIt}}, "MarkDetaching a 1"},
		{"but not to one from which it was forced away",
			Facts{Exclusive: true, Nodes: []*Node{
				on("a", wanted("i"), attachedAs("1")), on("b", inUse("2"), entry(handshake.Detaching, "2"), forced, detached),
			}}, ""},
		{"nor to one whose agent has not said so under this state",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), attachedAs("1")), on("b", inUse("2"), unreported)}}, ""},
		{"where both use it neither is detached, whatever the evidence",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), attachedAs("1"), inUse("1"), tainted), usesIt}}, ""},
		{"a shared volume is used on several nodes",
			Facts{Nodes: []*Node{on("a", wanted("i"), attachedAs("1")), usesIt}}, ""},
		{"an attachment that was never confirmed waits for the node that uses the volume",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), va("1", "held")), usesIt}}, ""},

		{"an attachment under way to the node that is to have an exclusive volume stays",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), va("1", "held"))}}, ""},
		{"one of a shared volume stays on every node",
			Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "held")), on("b", wanted("j"), va("2", "held"))}}, ""},
		{"one to the wrong node stays while nobody can read which node that is",
			Facts{Exclusive: true, LockUnreadable: unreadable, Nodes: []*Node{
				on("a", wanted("i"), va("1", "held")), on("b", wanted("j"), va("2", "held")),
			}}, ""},
		{"of two nodes that both have it, as after a restore, neither is detached that may come to use it",
			Facts{Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
				on("a", wanted("i"), attachedAs("1")), on("b", wanted("j"), attachedAs("2")),
			}}, ""},

		{"what a driver without attach confirmed is not lost for want of an attachment",
			Facts{Nodes: []*Node{on("a", wanted("i"), entry(handshake.Attached, "1"), attachless)}}, ""},
	})
}

func TestADetachContinuesStepByStep(t *testing.T) {
	detaching := entry(handshake.Detaching, "1")
	checkDecisions(t, []decision{
		{"the name is not freed before the driver is done",
			Facts{Nodes: []*Node{on("a", va("1", "terminating", "name"), detaching, forced)}}, ""},
		{"an attachment of which nothing but its name is left is gone",
			Facts{Nodes: []*Node{
				on("a", va("1", "terminating", "name", "unpublished"), detaching, forced, inUse("1")),
			}}, "Forget a 1"},
		{"one that holds no name of ours is forgotten and not touched",
			Facts{Nodes: []*Node{on("a", va("1", "terminating", "unpublished"), detaching)}}, "Forget a 1"},
		{"the agent of a node that rebooted is asked while the name is held",
			Facts{Replace: true, Nodes: []*Node{
				on("a", wanted("i"), va("1", "terminating", "name", "unpublished"), detaching, afterAReboot, unlistedBefore),
			}}, "Ask a 1"},

		{"beside upstream the attachment is deleted also without a Node, if the report covers what its kubelet did",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, nodeGone, covered)}}, "Delete a 1"},
		{"otherwise it waits",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, nodeGone)}}, ""},
		{"also where the Node came back",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, cameBack)}}, ""},
		{"until there is evidence",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, nodeGone, tainted)}}, "MarkDetaching a 1 on evidence"},
		{"or a declaration",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, nodeGone, declared("1"))}},
			"MarkDetaching a 1 on evidence"},
		{"and goes on that",
			Facts{Nodes: []*Node{on("a", va("1", "held"), detaching, forced, nodeGone)}}, "Delete a 1"},

		{"in place of upstream the Node stops listing the volume first",
			Facts{Replace: true, Nodes: []*Node{on("a", va("1", "held", "attached"), detaching)}}, "Unlist a"},
		{"a Node that is gone cannot",
			Facts{Replace: true, Nodes: []*Node{on("a", va("1", "held", "attached"), detaching, nodeGone)}}, ""},
		{"then the agent looks",
			Facts{Replace: true, Nodes: []*Node{on("a", va("1", "held", "attached"), detaching, unlistedBefore)}}, ""},
		{"and then the attachment is deleted",
			Facts{Replace: true, Nodes: []*Node{
				on("a", va("1", "held", "attached"), detaching, unlistedBefore, lookedSince),
			}}, "Delete a 1"},
		{"unless the look finds the volume in use",
			Facts{Replace: true, Nodes: []*Node{
				on("a", va("1", "held", "attached"), detaching, unlistedBefore, lookedSince, inUse("1")),
			}}, ""},
	})
}

func TestInPlaceOfUpstreamTheKubeletIsAskedBeforeADetach(t *testing.T) {
	for _, c := range []struct {
		name     string
		upstream bool
		node     *Node
		want     string
	}{
		{"what the kubelet does not list in use is detached", false, on("a", attachedAs("1")), "MarkDetaching a 1"},
		{"what it lists in use is not", false, on("a", attachedAs("1"), listedInUse), ""},
		{"nor what a Node that is gone may have listed", false, on("a", attachedAs("1"), nodeGone), ""},
		{"evidence stands in for the kubelet too",
			false, on("a", attachedAs("1"), listedInUse, unreported, tainted), "MarkDetaching a 1 on evidence"},
		{"beside upstream the agent's word is enough", true, on("a", attachedAs("1"), listedInUse), "MarkDetaching a 1"},
		{"also of a Node that is gone, if it covers what the kubelet did", true,
			on("a", attachedAs("1"), nodeGone, covered), "MarkDetaching a 1"},
		{"but not otherwise", true, on("a", attachedAs("1"), nodeGone), ""},
		{"nor where the Node came back", true, on("a", attachedAs("1"), cameBack), ""},
		{"nor for an attachment without an entry", true, on("a", va("1", "held"), nodeGone), ""},
		{"unless the driver knows no attach", true,
			on("a", entry(handshake.Attached, "1"), attachless, nodeGone), "MarkDetaching a"},
		{"only on evidence then", true, on("a", attachedAs("1"), nodeGone, tainted), "MarkDetaching a 1 on evidence"},
		{"or a declaration", true, on("a", attachedAs("1"), nodeGone, declared("1")), "MarkDetaching a 1 on evidence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if have := decided(Facts{Replace: !c.upstream, Nodes: []*Node{c.node}},
				handshake.Protocol{Kubelet: !c.upstream}); have != c.want {
				t.Errorf("steps for volume v: %q, want %q", have, c.want)
			}
		})
	}
}

func TestAnUnwantedAttachmentWithoutAnEntryIsDetached(t *testing.T) {
	checkDecisions(t, []decision{
		{"in place of upstream what has the shared name is detached",
			Facts{Replace: true, Nodes: []*Node{on("a", sharedName("1", "attached"), byController)}}, "MarkDetaching a 1"},
		{"also from a Node that is nodeGone, on evidence",
			Facts{Replace: true, Nodes: []*Node{
				on("a", sharedName("1", "attached"), nodeGone, unreported, tainted),
			}}, "MarkDetaching a 1 on evidence"},
		{"but not from a kubelet that attaches by itself",
			Facts{Replace: true, Nodes: []*Node{on("a", sharedName("1", "attached"))}}, ""},
		{"nor beside upstream",
			Facts{Nodes: []*Node{on("a", sharedName("1", "attached"), byController)}}, ""},
		{"nor what another controller made under a name of its own",
			Facts{Replace: true, Nodes: []*Node{on("a", va("1", "attached"), byController)}}, ""},
		{"what an intent counted on goes before that",
			Facts{Replace: true, Nodes: []*Node{
				on("a", sharedName("1", "attached"), va("2", "held"), byController),
			}}, "MarkDetaching a 2"},
		{"what the Node lists though nothing is attached is unlisted",
			Facts{Replace: true, Nodes: []*Node{on("a", listedAttached)}}, "MarkDetaching a"},
		{"but not while an attachment is on its way out",
			Facts{Replace: true, Nodes: []*Node{on("a", listedAttached, va("1", "terminating"))}}, ""},
		{"nothing is marked that the Node does not list",
			Facts{Replace: true, Nodes: []*Node{on("a")}}, ""},
		{"beside upstream the Node's list is upstream's",
			Facts{Nodes: []*Node{on("a", listedAttached)}}, ""},
	})
}

func TestWhenALeavingIntentIsReleased(t *testing.T) {
	stays := together(leaving("i*"), wanted("j*"), attachedAs("1"))
	checkDecisions(t, []decision{
		{"on a node that never was", Facts{Nodes: []*Node{on("a", leaving("i*"), stateless, nodeGone, live)}}, "Release a i"},
		{"not on one whose agent has yet to come", Facts{Nodes: []*Node{on("a", leaving("i*"), stateless, live)}}, ""},
		{"nor on a Node that is gone while its agent's word stands out",
			Facts{Nodes: []*Node{on("a", leaving("i*"), unreported, nodeGone, live)}}, ""},
		{"not before Detaching stands for an attachment that was made for it",
			Facts{Nodes: []*Node{on("a", leaving("i*"), va("1", "held"), live)}}, "MarkDetaching a 1"},
		{"at once where that attachment stays for a pod, which may wait for this intent to go",
			Facts{Nodes: []*Node{on("a", leaving("i*"), va("1", "held"), pods, live)}}, "Release a i"},
		{"but not while the agent may still use it",
			Facts{Nodes: []*Node{on("a", leaving("i*"), va("1", "held"), pods, live, unreported)}}, ""},
		{"once the agent has answered, though the volume stays in use",
			Facts{Nodes: []*Node{on("a", stays, acknowledges, inUse("1"))}}, "Release a i"},
		{"where it is the kubelet that uses what stays",
			Facts{Nodes: []*Node{on("a", stays, inUse("1"), kubeletUses, live)}}, "Release a i"},
		{"not before the detach is forced that its policy is for",
			Facts{Nodes: []*Node{on("a", leaving("i*"), withPolicy, acknowledges, attachedAs("1"), nodeGone)}}, ""},
		{"unless the volume stays for another intent",
			Facts{Nodes: []*Node{on("a", stays, withPolicy, acknowledges, nodeGone)}}, "Release a i"},
		{"or the report covers what the kubelet did",
			Facts{Nodes: []*Node{on("a", leaving("i*"), withPolicy, acknowledges, attachedAs("1"), nodeGone, covered)}},
			"Release a i"},
		{"on a node whose agent is not heard, if it shows nothing of the volume",
			Facts{Nodes: []*Node{on("a", leaving("i*"), unheard)}}, "ReleaseUnheard a i"},
		{"not if it shows a use there", Facts{Nodes: []*Node{on("a", leaving("i*"), unheard, inUse("1"))}}, ""},
		{"nor if that agent has reported, whose word is read live", Facts{Nodes: []*Node{
			on("a", leaving("i*"), func(n *Node) { n.Unheard = true }),
		}}, "ReadState a"},
		{"not while the agent of a volume that stays has not reported",
			Facts{Nodes: []*Node{on("a", stays, unreported, live)}}, ""},
	})
}
