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
)

func TestActsAreLoggedWithVolumeNodeAndIntents(t *testing.T) {
	n := on("a", wanted("i", "j"), va("1"))
	n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone}
	for _, c := range []struct {
		name string
		step Step
		want string
	}{
		{"an attach", Step{Act: Attach, Node: n}, `"level"=0 "msg"="acting" "act"="Attach" "volume"="v" "node"="a" "intents"=["default/i" "default/j"]`},
		{"a forced detach", Step{Act: MarkDetaching, Node: n, Attachment: &n.Attachments[0], Evidence: true},
			`"level"=0 "msg"="acting" "act"="MarkDetaching" "volume"="v" "node"="a" "intents"=["default/i" "default/j"] "attachment"="va-1" "evidence"="NodeGone"`},
		{"a release", Step{Act: Release, Node: n, Intents: n.Wanted[1:]}, `"level"=1 "msg"="acting" "act"="Release" "volume"="v" "node"="a" "intents"=["default/j"]`},
		{"a look", Step{Act: Look, Node: on("b")}, `"level"=1 "msg"="acting" "act"="Look" "volume"="v" "node"="b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
			logStep(ctrl.LoggerInto(t.Context(), log), &Facts{Volume: "v"}, c.step)
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
