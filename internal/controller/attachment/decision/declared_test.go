/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/handshake"
)

func declared(uids ...types.UID) func(*Node) {
	return func(n *Node) {
		for _, uid := range uids {
			n.State.Declared = append(n.State.Declared, handshake.Declaration{UID: uid, Reason: "scrapped"})
		}
	}
}

func TestDecideOnWhatWasDeclaredReleased(t *testing.T) {
	attached := []func(*Node){va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1")}
	for _, test := range []struct {
		name    string
		node    *Node
		replace bool
		want    Act
	}{
		{"what is in use and nobody wants is detached", on("a", append(attached, declared("1"))...), false, MarkDetaching},
		{"also what is wanted", on("a", append(attached, wanted("i"), declared("1"))...), false, MarkDetaching},
		{"also what pods use", on("a", append(attached, pods, declared("1"))...), false, MarkDetaching},
		{"a word on another says nothing", on("a", append(attached, declared("2"))...), false, ""},
		{"an attachment that no entry speaks of is detached", on("a", va("1", "attached"), declared("1")), false,
			MarkDetaching},
		{"a foreign one beside it is not", on("a", va("1", "attached"), declared("2")), false, ""},
		{"nor one that was created for another volume",
			on("a", saying("w", "pv", "1", "attached"), declared("1")), false, ""},
		{"one that terminates is waited out", on("a", va("1", "attached", "terminating"), declared("1")), false, ""},
		{"a detach comes to rest on it", on("a", va("1", "held"), entry(handshake.Detaching, "1"), pods, declared("1")),
			false, MarkDetaching},
		{"once", on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, declared("1")), false, Delete},
		{"its name is freed", on("a", va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), forced,
			detached, inUse("1"), declared("1")), false, FreeName},
		{"its entry stays until the agent reports",
			on("a", entry(handshake.Detaching, "1"), forced, detached, inUse("1"), declared("1")), false, ""},
		{"and goes then", on("a", entry(handshake.Detaching, "1"), forced, detached, declared("1")), false, Forget},
		{"its entry stays where the agent never reported",
			on("a", entry(handshake.Detaching, "1"), forced, detached, unreported, declared("1")), false, ""},
		{"the node does not get the volume again while its agent says that it uses it",
			on("a", wanted("i"), inUse("1"), declared("1")), false, ""},
		{"nor while the earlier attachment's entry stands",
			on("a", wanted("i"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"), declared("1")), false, ""},
		{"but after that", on("a", wanted("i"), declared("1")), false, Attach},
		{"a detach that waits for a look comes to rest on evidence",
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), true, MarkDetaching},
		{"and not beside upstream, where it needs no look",
			on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), false, Delete},
	} {
		t.Run(test.name, func(t *testing.T) {
			steps := electAndDecide(&Facts{Volume: "v", AttachRequired: true, Replace: test.replace, Nodes: []*Node{test.node}},
				handshake.Protocol{Kubelet: test.replace})
			var got Act
			if len(steps) > 0 {
				got = steps[0].Act
			}
			if len(steps) > 1 || got != test.want {
				t.Errorf("steps for volume v on node %s: %v, want %q", test.node.Name, steps, test.want)
			}
			if got == MarkDetaching && !steps[0].Evidence {
				t.Errorf("step for volume v on node %s: %v, want it to rest on evidence, not on the agent's release",
					test.node.Name, steps[0])
			}
		})
	}
}

func TestADeclarationThatOverrulesAnAgentSaysSo(t *testing.T) {
	state := handshake.Node{
		Exists: true, Reported: true, Use: handshake.Use{UID: "1", InUse: true},
		Declared: []handshake.Declaration{{UID: "1", Reason: "scrapped"}},
	}
	silent, released, unreported := state, state, state
	silent.Silent, released.Use.InUse, unreported.Reported = true, false, false
	for name, c := range map[string]struct {
		state handshake.Node
		want  string
	}{
		"an agent that is heard":       {state, "scrapped; the node's agent still reported the volume in use"},
		"one that is silent":           {silent, "scrapped"},
		"one that released the volume": {released, "scrapped"},
		"one that has yet to report":   {unreported, "scrapped"},
	} {
		if got := DeclarationOf(c.state, "1").Message; got != c.want {
			t.Errorf("evidence by a declaration against %s: %q, want %q", name, got, c.want)
		}
	}
}
