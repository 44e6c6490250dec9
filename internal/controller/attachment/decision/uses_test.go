/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// numbered are the names of intents, the oldest first; a mark is at the end of each.
func numbered(count int, mark string) []string {
	names := make([]string, count)
	for k := range names {
		names[k] = fmt.Sprintf("i-%04d%s", k, mark)
	}
	return names
}

func namesOf(intents []*Intent) []string {
	var names []string
	for _, i := range intents {
		names = append(names, i.Object.Name)
	}
	return names
}

func TestANodeTakesALimitedNumberOfUsesOfAVolume(t *testing.T) {
	const most = volumesv1alpha1.MaxUses
	kubelets := func(n *Node) {
		for _, i := range n.Wanted[len(n.Wanted)-most:] {
			i.Object.Spec.Publisher = volumesv1alpha1.PublisherKubelet
		}
	}
	for _, c := range []struct {
		name    string
		node    *Node
		refused []string
	}{
		{"as many as it takes", on("a", wanted(numbered(most, "")...)), nil},
		{"the youngest of too many", on("a", wanted(numbered(most+2, "")...)), []string{"i-0256", "i-0257"}},
		{"a newcomer", on("a", wanted(append(numbered(most, "*"), "a-first")...)), []string{"a-first"}},
		{"a newcomer while one leaves", on("a", wanted(append(numbered(most-1, "*"), "new")...), leaving("old*")),
			[]string{"new"}},
		{"nobody, once it is gone", on("a", wanted(append(numbered(most-1, "*"), "new")...)), nil},
		{"none that an earlier version has pinned", on("a", wanted(numbered(3*most, "*")...)), nil},
		{"a newcomer beside those", on("a", wanted(append(numbered(3*most, "*"), "new")...)), []string{"new"}},
		{"none of the kubelet's", on("a", wanted(numbered(2*most, "")...), kubelets), nil},
		{"those of a full namespace", on("a", wanted("i"), func(n *Node) {
			n.NamespaceUses = map[string]int{"default": volumesv1alpha1.MaxNamespaceUses}
		}), []string{"i"}},
		{"those beyond what is left to a namespace", on("a", wanted(numbered(3, "")...), func(n *Node) {
			n.NamespaceUses = map[string]int{"default": volumesv1alpha1.MaxNamespaceUses - 2}
		}), []string{"i-0002"}},
		{"none of another namespace", on("a", wanted("i"), func(n *Node) {
			n.NamespaceUses = map[string]int{"other": volumesv1alpha1.MaxNamespaceUses}
		}), nil},
		{"one that is not protected yet, later", on("a", wanted(append([]string{"early"}, numbered(most, "")...)...),
			unprotected), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := on("b", wanted("elsewhere"))
			f := &Facts{Volume: "v", Driver: "d", Nodes: []*Node{c.node, other}}
			all := len(c.node.Wanted)
			for range 2 { // as each round of a pass does
				KeepOneUser(f)
			}
			if got := namesOf(c.node.Refused); !slices.Equal(got, c.refused) {
				t.Errorf("refused on node a are %q, want %q", got, c.refused)
			}
			if len(c.node.Wanted) != all-len(c.refused) || len(other.Wanted) != 1 {
				t.Errorf("wanted on node a are %d intents and on node b %d, want %d and 1", len(c.node.Wanted),
					len(other.Wanted), all-len(c.refused))
			}
			for _, i := range c.node.Refused {
				found := RefusalOf(f, c.node, i)
				if found.Reason != volumesv1alpha1.ReasonTooManyUses || !strings.Contains(found.Message, "node a takes at most 2") {
					t.Errorf("finding of a refused intent: %+v, want reason %s with node and limit", found,
						volumesv1alpha1.ReasonTooManyUses)
				}
			}
		})
	}
}
