/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestTheSingleUserOfAVolume(t *testing.T) {
	unresolved := func(names ...string) func(*decision.Node) {
		return func(n *decision.Node) {
			for _, i := range n.Wanted {
				if slices.Contains(names, i.Object.Name) {
					i.Result.OK = false
				}
			}
		}
	}
	for _, c := range []struct {
		name          string
		node          *decision.Node
		lock          string
		stay, keptOut []string
	}{
		{"the oldest", on("a", wanted("i", "j")), "", []string{"default/i"}, []string{"default/j"}},
		{"whoever was found first", on("a", wanted("j", "i")), "", []string{"default/i"}, []string{"default/j"}},
		{"not one for which nothing can be attached",
			on("a", wanted("i", "j"), unresolved("i")), "", []string{"default/j"}, nil},
		{"which keeps nobody out, and is not kept out either",
			on("a", wanted("i", "j"), unresolved("j")), "", []string{"default/i"}, nil},
		{"but one that is pinned, whatever became of it since",
			on("a", wanted("i*", "j"), unresolved("i")), "", []string{"default/i"}, []string{"default/j"}},
		{"the one that the lock names, though another is older",
			on("a", wanted("z", "i")), "uid-z", []string{"default/z"}, []string{"default/i"}},
		{"two that an older manager pinned stay both",
			on("a", wanted("i*", "j*")), "", []string{"default/i", "default/j"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := decision.Facts{Volume: "v", SingleUser: true, Exclusive: true, AttachRequired: true,
				Nodes: []*decision.Node{c.node}}
			for _, i := range c.node.Wanted {
				i.Object.UID = types.UID("uid-" + i.Object.Name)
			}
			if c.lock != "" {
				f.Lock = handshake.Lock{Exists: true, Holder: "a", User: types.UID(c.lock)}
			}
			decision.KeepOneUser(&f)
			if stay, keptOut := namesOf(c.node.Wanted), namesOf(c.node.Refused); !slices.Equal(stay, c.stay) ||
				!slices.Equal(keptOut, c.keptOut) {
				t.Errorf("intents of volume v on node a: wanted %v, refused %v; want %v, %v", stay, keptOut, c.stay, c.keptOut)
			}
		})
	}
}
