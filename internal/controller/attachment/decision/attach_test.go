/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// publishedByKubelet makes the intents ones whose volume the kubelet mounts.
func publishedByKubelet(n *Node) {
	for _, i := range n.Wanted {
		i.Object.Spec.Publisher = volumesv1alpha1.PublisherKubelet
	}
}

// declaredInUse is a node on which an earlier attachment was declared released, and whose agent says that it is in use.
func declaredInUse(n *Node) { together(inUse("1"), declared("1"))(n) }

// otherFSType: the entry names a filesystem that the volume does not have any more.
func otherFSType(n *Node) { n.Entry.FSType = "earlier" }

func TestWhichNodeIsToHaveAnExclusiveVolume(t *testing.T) {
	checkDecisions(t, []decision{
		{"the one whose intent is the oldest",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i")), on("b", wanted("j"))}}, "Attach a"},
		{"the one that holds the lock, though another's intent is older",
			Facts{Exclusive: true, Lock: lockOn("b"), Nodes: []*Node{on("a", wanted("i")), on("b", wanted("j"))}}, "Attach b"},
		{"the one to which it is attached, though another's intent is older",
			Facts{Exclusive: true, Nodes: []*Node{
				on("a", wanted("i"), va("1", "held")), on("b", wanted("j"), attachedAs("2"), inUse("2")),
			}}, "MarkDetaching a 1"},
		{"not the one that may not have it before its agent reports, though its intent is the oldest",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), declaredInUse), on("b", wanted("j"))}}, "Attach b"},
		{"whatever the order of the nodes",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("j")), on("b", wanted("i"), declaredInUse)}}, "Attach a"},
	})
}

func TestTheObstaclesToAnAttachment(t *testing.T) {
	checkDecisions(t, []decision{
		{"admission policies that are not in force",
			Facts{PolicyMissing: "deleted", Nodes: []*Node{on("a", wanted("i"))}}, ""},
		{"the out-of-service taint, also where it is no evidence",
			Facts{Nodes: []*Node{on("a", wanted("i"), outOfService)}}, ""},
		{"a lock that cannot be read",
			Facts{Exclusive: true, LockUnreadable: unreadable, Nodes: []*Node{on("a", wanted("i"))}}, ""},
		{"but only of a volume for one node",
			Facts{LockUnreadable: unreadable, Nodes: []*Node{on("a", wanted("i"))}}, "Attach a"},
		{"another node that has an exclusive volume without an attachment",
			Facts{Exclusive: true, Nodes: []*Node{
				on("a", wanted("i")), on("b", pods, entry(handshake.Attached, "2"), attachless),
			}}, ""},
		{"no other node of a shared volume",
			Facts{Nodes: []*Node{on("a", wanted("i")), on("b", wanted("j"), attachedAs("2"), inUse("2"))}}, "Attach a"},
		{"not the node's own attachment",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("i"), va("1", "held", "attached"))}}, "Confirm a 1"},
		{"an earlier attachment whose detach goes on",
			Facts{Nodes: []*Node{
				on("a", wanted("i"), va("1", "terminating"), entry(handshake.Detaching, "1"), va("2", "held", "attached")),
			}}, ""},
		{"not what the kubelet mounted of an attachment that upstream made",
			Facts{Nodes: []*Node{on("a", wanted("i"), inUse(""), kubeletUses, va("1", "attached"))}}, "Hold a 1"},
		{"also where it is the single user's",
			Facts{SingleUser: true, Exclusive: true, Nodes: []*Node{
				on("a", wanted("i"), publishedByKubelet, inUse(""), kubeletUses, va("1", "attached")),
			}}, "Hold a 1"},
		{"but what the kubelet mounted of a volume whose single user the agent publishes for",
			Facts{SingleUser: true, Exclusive: true, Nodes: []*Node{
				on("a", wanted("i"), inUse(""), kubeletUses, va("1", "attached")),
			}}, ""},
	})
}

func TestWhatIsStillToDoForAnAttachedVolume(t *testing.T) {
	checkDecisions(t, []decision{
		{"the node is told what changed about the volume",
			Facts{Nodes: []*Node{on("a", wanted("i"), attachedAs("1"), otherFSType)}}, "Confirm a 1"},
		{"the lock names the single user",
			Facts{SingleUser: true, Exclusive: true, Lock: lockOn("b"), Nodes: []*Node{
				on("a", wanted("i"), attachedAs("1")),
			}}, "TakeUser a"},
		{"but before that the volume leaves the list that a pod may come for",
			Facts{Replace: true, SingleUser: true, Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
				on("a", wanted("i"), attachedAs("1"), listedAttached),
			}}, "MarkDetaching a 1"},
		{"once no pod is there",
			Facts{Replace: true, SingleUser: true, Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
				on("a", wanted("i"), attachedAs("1"), listedAttached, listedInUse),
			}}, ""},
		{"and not for the intent of a pod",
			Facts{Replace: true, SingleUser: true, Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
				on("a", wanted("i"), publishedByKubelet, attachedAs("1"), listedAttached),
			}}, ""},
		{"in place of upstream the Node lists it for the kubelet",
			Facts{Replace: true, Nodes: []*Node{on("a", wanted("i"), publishedByKubelet, attachedAs("1"))}}, "List a"},
		{"once",
			Facts{Replace: true, Nodes: []*Node{on("a", wanted("i"), publishedByKubelet, attachedAs("1"), listedAttached)}}, ""},
		{"not for the agent, which asks for no list",
			Facts{Replace: true, Nodes: []*Node{on("a", wanted("i"), attachedAs("1"))}}, ""},
		{"nor without an attachment",
			Facts{Replace: true, Nodes: []*Node{
				on("a", wanted("i"), publishedByKubelet, entry(handshake.Attached, "1"), attachless),
			}}, ""},
		{"nor beside upstream, whose list it is",
			Facts{Nodes: []*Node{on("a", wanted("i"), publishedByKubelet, attachedAs("1"))}}, ""},
	})
}
