/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	"github.com/hawser-io/hawser/internal/handshake"
)

func TestAnEntryForAnotherPersistentVolumeStaysWhileThatOneHasAnIntent(t *testing.T) {
	second := intentNamed("b")
	second.Result.Source.PersistentVolume, second.Result.Pins.VolumeName = "pv-2", "pv-2"
	for _, c := range []struct {
		name   string
		option func(*Node)
		stale  bool
	}{
		{"wanted", wanted("a"), false},
		{"leaving", func(n *Node) {
			leaving("a")(n)
			n.Leaving[0].Result.OK, n.Leaving[0].Object.Status.VolumeName = false, "pv"
		}, false},
		{"gone", func(*Node) {}, true},
	} {
		n := on("n", entry(handshake.Attached, "1"), va("1", "held", "attached"), c.option)
		n.Wanted = append(n.Wanted, second)
		if got := Stale(&Facts{Volume: "v"}, n, second); got != c.stale {
			t.Errorf("entry of pv on node n, whose intent is %s: stale %t, want %t", c.name, got, c.stale)
		}
	}
}
