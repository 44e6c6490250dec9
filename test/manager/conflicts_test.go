/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/controller"
)

// theManagerRetriesAfterConflicts: an exclusive volume is attached to one node, then to another, and detached. Then the
// Nodes are deleted.
func theManagerRetriesAfterConflicts(t *testing.T, w *world, mode controller.AttachMode) {
	name := "rival-" + strings.ToLower(string(mode))
	from, to := name+"-a", name+"-b"
	agents := []*agent{w.managedNode(t, from), w.managedNode(t, to)}
	recorder := w.record(t, name+"-sentinel")
	r := newConflicts(2)
	requests, stop := w.manage(t, managerOptions{attachMode: mode, transport: r.transport})
	defer stop()
	t.Cleanup(func() {
		_, what := requests.writes()
		t.Logf("requests %s, refused %v", what, r.refused)
	})
	writes := []string{"PUT configmaps", "POST volumeattachments", "DELETE volumeattachments", "PUT nodevolumestates",
		"DELETE nodevolumestates"}
	if mode == controller.Replace {
		w.podCycle(t, name, from, to)
		writes = append(writes, "POST volumeattachmentintents", "PATCH nodes/status")
	} else {
		w.cycle(t, name, from, to)
	}
	for i, node := range []string{from, to} {
		agents[i].stop()
		w.delete(t, nodeNamed(node))
		gone(t, w, stateOf(node))
	}
	r.expect(t, writes...)
	// Some thirty writes are due, and each may have to be made three times.
	if n, what := requests.writes(); n > 120 {
		t.Errorf("%d writes for volume %s, want at most 120: %s", n, name, what)
	}
	stop()
	for _, wrong := range checkHistory(recorder.history(t.Context())) {
		t.Errorf("history of volume %s: %s; want no violation", name, wrong)
	}
}

// podCycle brings a volume to a pod on one node, then to one of the same name on another, and away.
func (w *world) podCycle(t *testing.T, name, from, to string) {
	t.Helper()
	w.volume(t, name, volumeOptions{})
	first := w.wantAttached(t, controller.Replace, name, name, from)
	first.awaitAttached(t)
	w.kubeletUses(t, from, name)
	first.drop(t)
	second := w.wantAttached(t, controller.Replace, name, name, to)
	w.podIntents(t, second.pod, name)
	w.kubeletUses(t, from)
	second.awaitAttached(t)
	first.awaitDetached(t)
	second.drop(t)
	second.awaitDetached(t)
	w.podIntents(t, first.pod)
	w.podIntents(t, second.pod)
}
