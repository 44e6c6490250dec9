/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/history"
	"github.com/hawser-io/hawser/internal/explain/tree"
)

// gathered are the facts about the subject of a fixture.
func gathered(t *testing.T, f fixture) (*facts.Gatherer, *facts.Facts) {
	t.Helper()
	g := &facts.Gatherer{Reader: newFakeReader(t, f), System: "hawser-system", Now: func() time.Time { return noon }}
	found, err := g.Gather(t.Context(), subjectOf(t, f))
	if err != nil {
		t.Fatal(err)
	}
	return g, found
}

func TestEverySubjectHasATreeAndAHistory(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		g, found := gathered(t, f)
		if root := tree.Of(found); root.Object != found.Subject.String() {
			t.Errorf("%s: the tree begins with %s, want %s", f.name, root.Object, found.Subject)
		}
		moments := history.Of(found, g.EventsOf(t.Context(), found))
		for i := range moments {
			if i > 0 && moments[i].Time.Before(moments[i-1].Time) {
				t.Errorf("%s: %+v comes after %+v, want the oldest first", f.name, moments[i], moments[i-1])
			}
		}
	}
}

func TestATreeHasWhatHangsOnItsSubject(t *testing.T) {
	for name, want := range map[string][]string{
		"set-two-causes": {"1 of 3 intents are ready", "Node node-b: claim shop/data",
			"VolumeAttachmentIntent shop/cache-node-c: Ready False: StageFailed"},
		"attachment-used": {"attached", "PersistentVolumeClaim shop/data: Bound", "Node node-b",
			"Pod shop/web: Running"},
		"attachment-detach-error": {"being detached, detach fails: rpc error"},
		"attachment-node-gone":    {"Node node-b: does not exist"},
		"manager-agent-silent": {"Available: False: AgentsNotReady", "manager: renews its Lease, hawser-manager-1",
			"agents: 2", "Node node-b: silent since 2026-11-25T11:50:00Z"},
		"claim-volume-full":   {"PersistentVolumeClaim shop/data: Bound", "PersistentVolume pv-1"},
		"claim-without-class": {"PersistentVolumeClaim shop/data: Pending"},
		"pod-running":         {"Pod shop/web: Running on node node-b", "PersistentVolume pv-1"},
		"node-driver-gone":    {"PersistentVolume pv-1, claim shop/data"},
	} {
		_, found := gathered(t, one(t, name, noon))
		root := tree.Of(found)
		var b bytes.Buffer
		writeBranch(&b, &root, "", "")
		for _, text := range want {
			if !strings.Contains(b.String(), text) {
				t.Errorf("the tree of %s has no %q:\n%s", name, text, &b)
			}
		}
	}
}

func TestAHistoryHasWhatItsSubjectRecords(t *testing.T) {
	for name, want := range map[string][]string{
		"set-two-causes":          {"Ready is False: Progressing", "created for node node-c"},
		"attachment-detach-error": {"created for node node-b", "deleted", "detach failed: rpc error"},
		"manager-crashes":         {"Degraded is True: PodsFailing: pod hawser-manager-1"},
		"claim-volume-full":       {"PersistentVolumeClaim shop/data", "PersistentVolume pv-1"},
	} {
		g, found := gathered(t, one(t, name, noon))
		text := ""
		for _, m := range history.Of(found, g.EventsOf(t.Context(), found)) {
			text += m.Object + " " + m.What + "\n"
		}
		for _, what := range want {
			if !strings.Contains(text, what) {
				t.Errorf("the history of %s has no %q:\n%s", name, what, text)
			}
		}
	}
}
