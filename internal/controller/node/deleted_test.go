/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestADeletedNodeStateIsRemovedOnceNothingIsLeftAndReportsWhatItWaitsFor(t *testing.T) {
	type with = []func(*volumesv1alpha1.NodeVolumeState)
	for _, c := range []struct {
		name string
		// as the cache shows the state, and as it is where that differs.
		is, live with
		// stays: the state is still there. tells names the volumes that an event names.
		stays bool
		tells []string
	}{
		{"nobody has deleted it, and nothing is left", with{}, nil, true, nil},
		{"nobody has deleted it, and a volume is attached", with{attached("v", "1")}, nil, true, nil},
		{"nothing is left", with{deleted}, nil, false, nil},
		{"a volume is attached", with{deleted, attached("vol-1", "1")}, nil, true, []string{"vol-1"}},
		{"a volume is attached and in use", with{deleted, attached("vol-1", "1"), line("vol-1", "1", true)}, nil, true,
			[]string{"vol-1"}},
		{"a volume is attached and another one is in use",
			with{deleted, attached("vol-1", "1"), line("vol-2", "2", true)}, nil, true,
			[]string{"vol-1", "vol-2"}},
		{"the kubelet uses a volume by an attachment that is not ours", with{deleted, line("vol-1", "", true)}, nil, true,
			[]string{"vol-1"}},
		{"a volume is attached and another one is not in use any more",
			with{deleted, attached("vol-1", "1"), line("vol-2", "2", false)}, nil,
			true, []string{"vol-1"}},
		{"no volume is in use any more", with{deleted, line("vol-1", "1", false)}, nil, false, nil},
		{"what was forced away was declared released",
			with{deleted, detached("vol-1", "1", volumesv1alpha1.EvidenceNodeGone), declared("1")}, nil, false, nil},
		{"what was forced away was not declared released",
			with{deleted, detached("vol-1", "1", volumesv1alpha1.EvidenceNodeGone)}, nil, true, []string{"vol-1"}},
		{"a volume was attached, and the cache does not show it yet", with{deleted},
			with{deleted, attached("vol-1", "1")}, true, nil},
		{"a volume came into use, and the cache does not show it yet", with{deleted},
			with{deleted, line("vol-1", "", true)}, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cached := stateOf("here", c.is...)
			live := cached
			if c.live != nil {
				live = stateOf("here", c.live...)
				live.ResourceVersion = "8"
			}
			w := over(t, []client.Object{cached}, []client.Object{live})
			again, err := w.giveWay(t.Context(), cached)
			if err != nil {
				t.Fatal(err)
			}
			after := w.state(t, "here")
			if stays := after != nil && len(after.Finalizers) == 1; stays != c.stays {
				t.Errorf("node state here is kept: %t, want %t", stays, c.stays)
			}
			note := w.note(t)
			if (again == deletionReminder) != (c.tells != nil) || again != never && c.tells == nil {
				t.Errorf("next event about node state here in %s, want %s: %t", again, deletionReminder, c.tells != nil)
			}
			if c.tells == nil {
				if note != "" {
					t.Errorf("event about node state here: %q, want none", note)
				}
				return
			}
			_, list, _ := strings.Cut(note, "Still there: ")
			if !strings.HasPrefix(note, "Warning "+EventDeletionWaits) || !strings.Contains(note, "spec.nodeName=here") ||
				!slices.Equal(strings.Split(list, ", "), c.tells) {
				t.Errorf("event about node state here: %q, want %s with volumes %v", note, EventDeletionWaits, c.tells)
			}
		})
	}
}

func TestADeletedNodeStateOfAnAbsentNodeWithNothingLeftReportsNothing(t *testing.T) {
	nvs := stateOf("gone", deleted)
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	if again, err := w.tellDeletion(t.Context(), nvs); again != never || err != nil || w.note(t) != "" {
		t.Errorf("deletion of node state gone with nothing left: next event in %s, error %v; want none", again, err)
	}
}

func TestTheReleaseOfADeletedNodeStateIsRetried(t *testing.T) {
	nvs := stateOf("here", deleted)
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	w.down = "update *v1alpha1.NodeVolumeState"
	if _, err := w.giveWay(t.Context(), nvs); err == nil || w.state(t, "here") == nil {
		t.Errorf("releasing node state here while writes fail: error %v, want one, and the state kept", err)
	}
}
