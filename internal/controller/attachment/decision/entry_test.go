/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestAVolumeHasOneEntry(t *testing.T) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	for _, e := range []volumesv1alpha1.NodeAttachment{
		{VolumeName: "v", AttachmentUID: "1"}, {VolumeName: "w", AttachmentUID: "2"}, {VolumeName: "v", AttachmentUID: "3"},
		{VolumeName: "w", AttachmentUID: "4", State: volumesv1alpha1.AttachmentDetaching},
	} {
		PutEntry(nvs, e)
	}
	var got []string
	for _, e := range nvs.Spec.Attachments {
		got = append(got, e.VolumeName+" "+string(e.AttachmentUID))
	}
	if want := []string{"v 3", "w 4"}; !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q: the last one of each volume", got, want)
	}
	if RemoveEntry(nvs, "v"); len(nvs.Spec.Attachments) != 1 {
		t.Errorf("%d entries after the removal of v, want that of w", len(nvs.Spec.Attachments))
	}
}

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
