/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/controller"
)

// changesDuringALossOfAllWatchesAreHandled: they are lost while one volume is being attached and another one
// detached, both of which come to their end unseen; a third one is wanted on another node when the manager sees
// again, and a fourth one stays.
func changesDuringALossOfAllWatchesAreHandled(t *testing.T, w *world, mode controller.AttachMode) {
	name := "blind-" + strings.ToLower(string(mode))
	a, b := name+"-a", name+"-b"
	w.managedNode(t, a)
	w.managedNode(t, b)
	in, out, moves, stays := name+"-in", name+"-out", name+"-moves", name+"-stays"
	for _, claim := range []string{in, out, moves, stays} {
		w.volume(t, claim, volumeOptions{})
	}
	everything := w.record(t, name+"-sentinel")
	c := newBlocker()
	requests, stop := w.manage(t, managerOptions{attachMode: mode, transport: c.transport})
	defer stop()
	leaving, moving, staying := w.wantAttached(t, mode, out, out, a), w.wantAttached(t, mode, moves, moves, a),
		w.wantAttached(t, mode, stays, stays, a)
	leaving.awaitAttached(t)
	moving.awaitAttached(t)
	attachment := staying.awaitAttached(t)
	w.attacher.set("pv-"+in, "", true)
	w.attacher.set("pv-"+out, "", true)
	coming := w.wantAttached(t, mode, in, in, a)
	leaving.drop(t)
	until(t, w, attachmentOf(in, a), "it is being attached", exists)
	until(t, w, attachmentOf(out, a), "it is being detached", func(va *storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp != nil
	})
	meanwhile := w.record(t, name+"-sentinel-2")
	requests.reset()

	c.block(resources...)
	c.awaitRequests(t)
	w.attacher.set("pv-"+in, "", false)
	w.attacher.set("pv-"+out, "", false)
	until(t, w, attachmentOf(in, a), "it is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
	gone(t, w, attachmentOf(out, a))
	// The pod that comes has the name of the one that went, as in a StatefulSet.
	moving.drop(t)
	moved := w.wantAttached(t, mode, moves, moves, b)
	c.unblock()

	coming.awaitAttached(t)
	leaving.awaitDetached(t)
	moving.awaitDetached(t)
	moved.awaitAttached(t)
	w.attachAndRelease(t, name+"-after", a)
	// A watch that is cut before its first event does not continue, but begins again.
	if c.expired == 0 {
		t.Error("no watch tried to continue from an expired version; want at least one")
	}
	if n, what := requests.writes(); n > 60 {
		t.Errorf("%d writes after the watches were lost, want at most 60: %s", n, what)
	}
	history := meanwhile.historySoFar()
	for _, x := range []*want{coming, moved, staying} {
		x.drop(t)
		x.awaitDetached(t)
	}
	stop()
	listed := []*storagev1.VolumeAttachment{attachment}
	if mode == controller.Coexist {
		listed = nil
	}
	wrong := append(checkHistory(everything.history(t.Context())),
		disturbances(history, []*storagev1.VolumeAttachment{attachment}, listed)...)
	for _, what := range wrong {
		t.Errorf("history in %s: %s; want no violation and no disturbance", mode, what)
	}
}
