/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// passes counts the reconciles of each controller in this process.
type passes map[string]int

func countPasses(t *testing.T) passes {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatalf("gathering the metrics of controller-runtime: %v", err)
	}
	counted := passes{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range family.Metric {
			for _, label := range m.Label {
				if label.GetName() == "controller" {
					counted[label.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return counted
}

// cost of one volume, on average.
type cost struct{ passes, writes float64 }

// spent returns what each of the volumes cost since p was counted and the requests were reset, and describes it.
func (p passes) spent(t *testing.T, requests *requestCounter, volumes int) (each cost, what string) {
	t.Helper()
	now, share := countPasses(t), func(n int) float64 { return float64(n) / float64(volumes) }
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if n := now[name] - p[name]; n > 0 {
			each.passes += share(n)
			parts = append(parts, fmt.Sprintf("%s %.1f", name, share(n)))
		}
	}
	n, writes := requests.writes()
	each.writes = share(n)
	return each, fmt.Sprintf("%.1f passes each (%s), %.1f writes each (%s)",
		each.passes, strings.Join(parts, ", "), each.writes, writes)
}

// TestACreateAndADeleteTakeFewPasses is the measurement of docs/internals/benchmarks.md. One volume after another is
// attached and detached, and the reconciles and writes are counted. The passes after the last volume of a batch may
// count for the next batch, and on a busy machine one pass handles more or fewer events. So the limits leave room for
// some.
func TestACreateAndADeleteTakeFewPasses(t *testing.T) {
	w := newWorldAlone(t)
	requests, _ := w.manage(t, managerOptions{})
	for _, test := range []struct {
		name           string
		change         func(*volumesv1alpha1.VolumeAttachmentIntent)
		create, remove cost
	}{
		{"Published", func(*volumesv1alpha1.VolumeAttachmentIntent) {}, cost{18, 5.5}, cost{12, 4.5}},
		{"Attached", setOnlyAttached, cost{12, 4.5}, cost{9, 3.5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			measurePasses(t, w, requests, test.change, test.create, test.remove)
		})
	}
}

func measurePasses(t *testing.T, w *world, requests *requestCounter,
	change func(*volumesv1alpha1.VolumeAttachmentIntent), create, remove cost) {
	const volumes = 10
	node := "passes-" + strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	w.node(t, node)
	name := func(i int) string { return fmt.Sprintf("%s-%d", node, i) }
	for i := range volumes + 1 {
		w.volume(t, name(i), volumeOptions{})
	}
	intents := make([]*volumesv1alpha1.VolumeAttachmentIntent, volumes+1)
	attach := func(i int) {
		intents[i] = newIntent(name(i), node, name(i))
		change(intents[i])
		w.create(t, intents[i])
		until(t, w, intents[i], "the intent is Ready", isReady)
	}
	detach := func(i int) {
		w.delete(t, intents[i])
		gone(t, w, intents[i])
		gone(t, w, attachmentOf(name(i), node))
	}
	limit := func(what string, limit cost, act func(i int)) {
		requests.reset()
		before := countPasses(t)
		for i := range volumes {
			act(i)
		}
		each, described := before.spent(t, requests, volumes)
		t.Logf("%s: %s", what, described)
		if each.passes > limit.passes || each.writes > limit.writes {
			t.Errorf("%s of one volume took %s, want at most %.0f passes and %.1f writes",
				what, described, limit.passes, limit.writes)
		}
	}
	// When it is Ready, the passes for the new node and the new volumes are over.
	attach(volumes)
	limit("create", create, attach)
	limit("delete", remove, detach)
}
