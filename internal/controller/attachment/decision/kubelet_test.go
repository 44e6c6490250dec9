/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	"github.com/hawser-io/hawser/internal/handshake"
)

// afterAReboot is a forced detach from node a, which has booted since and where a pod waits for the volume.
func afterAReboot(n *Node) {
	n.State.Entry = handshake.Entry{State: handshake.Detaching, UID: "1", Forced: true, Detached: true, Boot: "boot-1"}
	n.State.Use, n.State.Boot = handshake.Use{UID: "1", InUse: true}, "boot-2"
	n.Lists.InUse = true
}

func TestTheAgentOfARebootedNodeChecksAgainBeforeTheVolumeMayReturn(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *Node)
		want   string
	}{
		{"a pod waits", func(*Facts, *Node) {}, "Ask a"},
		{"nobody waits", func(_ *Facts, n *Node) { n.Wanted = nil }, ""},
		{"the node has not booted since", func(_ *Facts, n *Node) { n.State.Boot = "boot-1" }, ""},
		{"it was asked", func(_ *Facts, n *Node) { n.State.Entry.Asked = true }, ""},
		{"it is not detached", func(_ *Facts, n *Node) { n.State.Entry.Detached = false }, "Forget a"},
		{"the kubelet has let go", func(_ *Facts, n *Node) {
			n.State.Use, n.State.Looked = handshake.Use{}, true
		}, "Forget a"},
		{"the volume is somewhere else", func(f *Facts, _ *Node) {
			f.Exclusive = true
			f.Nodes = append(f.Nodes, on("b", wanted("j"), va("2", "held", "attached"), entry(handshake.Attached, "2")))
		}, ""},
		{"it is free everywhere else", func(f *Facts, _ *Node) { f.Exclusive = true }, "Ask a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := on("a", wanted("i"), entry(handshake.Detaching, "1"), afterAReboot)
			n.Entry.Protocol.UnlistedGeneration = 1
			f := &Facts{Volume: "v", AttachRequired: true, Replace: true, Nodes: []*Node{n}}
			c.change(f, n)
			got := ""
			for _, s := range electAndDecide(f, handshake.Protocol{Kubelet: true}) {
				got += describeStep(s)
			}
			if got != c.want {
				t.Errorf("steps for volume v: %q, want %q", got, c.want)
			}
		})
	}
}

func TestBesideAKubeletThatWaitsTheNameIsFreedOnceTheVolumeIsTheNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *Node)
		want   string
	}{
		{"the lock names the node", func(f *Facts, _ *Node) { f.Lock = lockOn("a") }, "FreeName a 1"},
		{"it is shared", func(f *Facts, _ *Node) { f.Exclusive = false }, "FreeName a 1"},
		{"the lock names another", func(f *Facts, _ *Node) { f.Lock = lockOn("b") }, "Ask a 1"},
		{"it is on its way", func(f *Facts, _ *Node) {
			f.Lock = handshake.Lock{Exists: true, Holder: "a", MovedFrom: "b"}
		}, "Ask a 1"},
		{"nobody wants the volume there", func(f *Facts, n *Node) { f.Lock, n.Wanted = lockOn("b"), nil }, ""},
		{"the kubelet has let go", func(f *Facts, n *Node) {
			f.Lock, n.State.Use = lockOn("b"), handshake.Use{}
		}, "FreeName a 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := on("a", wanted("i"), va("1", "terminating", "name", "unpublished"),
				entry(handshake.Detaching, "1"), afterAReboot)
			n.State.Entry.Asked, n.State.LookedAgain, n.State.Use = true, true, handshake.Use{InUse: true, Waiting: true}
			f := &Facts{Volume: "v", AttachRequired: true, Replace: true, Exclusive: true, Nodes: []*Node{n}}
			c.change(f, n)
			got := ""
			for _, s := range electAndDecide(f, handshake.Protocol{Kubelet: true}) {
				got += describeStep(s)
			}
			if got != c.want {
				t.Errorf("steps for volume v: %q, want %q", got, c.want)
			}
		})
	}
}
