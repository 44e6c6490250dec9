/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Another manager has confirmed the session of node a after it had the report of node b. The cache of this one has
// neither yet. It reads the state of node a live, because the API server refuses a write upon what the cache has.
func TestAUseElsewhereThatTheCacheDoesNotShowYetKeepsTheVolumeFromANode(t *testing.T) {
	for name, lags := range map[string]bool{"the cache has it": false, "the cache lags": true} {
		t.Run(name, func(t *testing.T) {
			lock := exclusive.Lock{Holder: "a"}
			now := reported("a")
			now.Spec.Protocol.ConfirmedSession, now.Status.Protocol.Session = 7, 7
			c, _ := over(t, now, usedIn(reported("b"), "2"), usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"),
				lockObject("v", lock))
			refuseNoName(c)
			was := reported("a")
			was.ResourceVersion = "1"
			if lags {
				behind(t, c, was, reported("b"), usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"),
					lockObject("v", lock))
			}
			n := on("a", wanted("i"), va("1", "held", "attached"))
			f := &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", AttachRequired: true, Exclusive: true,
				Lock: lock.Handshake(), Nodes: []*decision.Node{n}}
			if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); lags != errors.Is(err, errBehind) {
				t.Errorf("error %v, want that the cache is behind: %t", err, lags)
			}
			if live := liveState(t, c, "a"); len(live.Spec.Attachments) > 0 || n.State.Entry.State == handshake.Attached {
				t.Errorf("entries of node a while node b uses the volume: %d, want none", len(live.Spec.Attachments))
			}
		})
	}
}
