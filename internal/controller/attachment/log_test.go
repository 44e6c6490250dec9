/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	ctrl "sigs.k8s.io/controller-runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
)

func TestActsAreLoggedWithVolumeNodeAndIntents(t *testing.T) {
	n := on("a", wanted("i", "j"), va("1"))
	n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone}
	for _, c := range []struct {
		name string
		step decision.Step
		want string
	}{
		{"an attach", decision.Step{Act: decision.Attach, Node: n},
			`"level"=0 "msg"="acting" "act"="Attach" "volume"="v" "node"="a" "intents"=["default/i" "default/j"]`},
		{"a forced detach",
			decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0], Evidence: true},
			`"level"=0 "msg"="acting" "act"="MarkDetaching" "volume"="v" "node"="a" ` +
				`"intents"=["default/i" "default/j"] "attachment"="va-1" "evidence"="NodeGone"`},
		{"a release", decision.Step{Act: decision.Release, Node: n, Intents: n.Wanted[1:]},
			`"level"=1 "msg"="acting" "act"="Release" "volume"="v" "node"="a" "intents"=["default/j"]`},
		{"a live read", decision.Step{Act: decision.ReadState, Node: on("b")},
			`"level"=1 "msg"="acting" "act"="ReadState" "volume"="v" "node"="b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
			logStep(ctrl.LoggerInto(t.Context(), log), &decision.Facts{Volume: "v"}, c.step)
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("log lines of %s:\ngot  %s\nwant %s", c.name, got, c.want)
			}
		})
	}
}
