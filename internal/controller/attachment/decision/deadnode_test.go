/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestAPolicyIsKeptUntilTheAgentHasChecked(t *testing.T) {
	for _, c := range []struct {
		name           string
		policy, looked bool
		want           string
	}{
		{"an intent with a policy waits", true, false, ""},
		{"one without goes", false, false, "Release a i"},
		{"after the look both go", true, true, "Release a i"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Detaching, "1"), live)
			n.Entry.Protocol.UnlistedGeneration, n.State.Looked = 2, c.looked
			if c.policy {
				n.Leaving[0].Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{
					ForceAfter: metav1.Duration{Duration: 6 * time.Minute},
				}
			}
			got := ""
			for _, s := range electAndDecide(&Facts{Volume: "v", AttachRequired: true, Replace: true, Nodes: []*Node{n}},
				handshake.Protocol{Kubelet: true}) {
				got += describeStep(s)
			}
			if got != c.want {
				t.Errorf("steps for volume v: %q, want %q", got, c.want)
			}
		})
	}
}
