/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

var full = Limit{Known: true, Max: 3, Used: 3}

func limited(l Limit) func(*Node) { return func(n *Node) { n.Limit = l } }

func TestNothingIsAttachedToAFullNode(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		want  int
	}{
		{"no limit", Limit{}, 1},
		{"room", Limit{Known: true, Max: 3, Used: 2}, 1},
		{"full", full, 0},
		{"overfull, by others", Limit{Known: true, Max: 3, Used: 5}, 0},
		{"room for one, and somebody was first", Limit{Known: true, Max: 3, Used: 2, Ahead: 1}, 0},
		{"none allowed", Limit{Known: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Facts{Volume: "v", Driver: "d", AttachRequired: true, Nodes: []*Node{on("a", wanted("i"), limited(c.limit))}}
			if steps := electAndDecide(f, handshake.Protocol{}); len(steps) != c.want {
				t.Errorf("steps for node a with limit %+v: %v, want %d", c.limit, steps, c.want)
			}
			found := FindingOf(f, f.Nodes[0], f.Nodes[0].Wanted[0])
			if (found.Reason == volumesv1alpha1.ReasonNodeLimitReached) != (c.want == 0) {
				t.Errorf("finding for node a with limit %+v: %+v, want reason %s: %t", c.limit, found,
					volumesv1alpha1.ReasonNodeLimitReached, c.want == 0)
			}
		})
	}
}

func TestADriverThatHasNoRoomIsReportedAsTheLimit(t *testing.T) {
	n := on("a", wanted("i"), va("1", "held"))
	n.Attachments[0].AttachError = &storagev1.VolumeError{
		Message: "26 of 25 slots", ErrorCode: ptr.To[int32](8), Time: metav1.NewTime(time.Unix(1, 0)),
	}
	f := &Facts{Volume: "v", AttachRequired: true, Nodes: []*Node{n}}
	found := FindingOf(f, n, n.Wanted[0])
	if found.Reason != volumesv1alpha1.ReasonNodeLimitReached ||
		found.Message != "the driver has no room for the volume on node a: 26 of 25 slots" || found.Error == nil {
		t.Errorf("finding for volume v on node a: %+v, want reason %s with the driver's message", found,
			volumesv1alpha1.ReasonNodeLimitReached)
	}
	n.Attachments[0].AttachError.ErrorCode = ptr.To[int32](13)
	if found := FindingOf(f, n, n.Wanted[0]); found.Reason != volumesv1alpha1.ReasonAttachFailed {
		t.Errorf("finding for volume v on node a after another error: %+v, want reason %s", found,
			volumesv1alpha1.ReasonAttachFailed)
	}
}
