/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	"github.com/hawser-io/hawser/internal/handshake"
)

func TestWhatIsLeftOfAVolumeKeepsItsLock(t *testing.T) {
	lock := handshake.Lock{Exists: true, Holder: "a"}
	for _, test := range []struct {
		name  string
		facts Facts
		want  bool
	}{
		{"nothing is left", Facts{Lock: lock, Nodes: []*Node{on("a"), on("b")}}, true},
		{"nobody holds it", Facts{Lock: handshake.Lock{Exists: true}}, true},
		{"there is no lock", Facts{}, false},
		{"a PersistentVolume", Facts{Lock: lock, Described: true}, false},
		{"an intent that wants it", Facts{Lock: lock, Nodes: []*Node{on("a", wanted("i"))}}, false},
		{"an intent that leaves", Facts{Lock: lock, Nodes: []*Node{on("a", leaving("i"))}}, false},
		{"an attachment", Facts{Lock: lock, Nodes: []*Node{on("a", va("1"))}}, false},
		{"an entry", Facts{Lock: lock, Nodes: []*Node{on("a"), on("b", entry(handshake.Detaching, "1"))}}, false},
		{"a line", Facts{Lock: lock, Nodes: []*Node{on("a", inUse("1"))}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Collectable(&test.facts); got != test.want {
				t.Errorf("lock of a volume of which %s: collectable %t, want %t", test.name, got, test.want)
			}
		})
	}
}
