/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"maps"
	"testing"

	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

func TestANodeHasTheSameNumberOfVolumesAtEveryPointOfTheCurve(t *testing.T) {
	b := &bench{Options: Options{volumes: 60, nodes: 6, repetitions: 4}, curve: []int{30, 20}}
	b.plan()
	byNode := func(volumes []*stage.Volume) map[string]int {
		all := map[string]int{}
		for _, v := range volumes {
			all[v.Node]++
		}
		return all
	}
	for existing, want := range map[int]map[string]int{
		20: {"node-000": 10, "node-001": 10},
		30: {"node-000": 10, "node-001": 10, "node-002": 10},
	} {
		if got := byNode(b.nextTo(existing)); !maps.Equal(got, want) {
			t.Errorf("volumes by node next to %d existing ones: %v, want %v", existing, got, want)
		}
	}
	// One of the single volumes is for the warm-up.
	if got := byNode(b.single); !maps.Equal(got, map[string]int{"node-000": 3, "node-001": 2}) {
		t.Errorf("single volumes by node: %v, want 3 on node-000 and 2 on node-001", got)
	}
	if len(b.stage.Volumes) != 65 {
		t.Errorf("%d volumes on the stage, want 65", len(b.stage.Volumes))
	}
}

func TestFewerVolumesThanNodesUseAtLeastOneNode(t *testing.T) {
	b := &bench{Options: Options{volumes: 20, nodes: 10, repetitions: 1}, curve: []int{1}}
	b.plan()
	if got := b.nextTo(1); len(got) != 1 || b.single[0].Node != got[0].Node {
		t.Errorf("volumes next to one existing: %v, single volume on node %s; want one, on the same node", got,
			b.single[0].Node)
	}
}
