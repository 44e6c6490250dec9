/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/controller"
)

// whatHappenedWhileAllWatchesWereLostIsMadeUpFor: they are lost while one volume is being attached and another one
// detached, both of which come to their end unseen; a third one is wanted on another node when the manager sees
// again, and a fourth one stays.
func whatHappenedWhileAllWatchesWereLostIsMadeUpFor(t *testing.T, w *world, mode controller.AttachMode) {
	name := "blind-" + strings.ToLower(string(mode))
	a, b := name+"-a", name+"-b"
	w.managedNode(t, a)
	w.managedNode(t, b)
	in, out, moves, stays := name+"-in", name+"-out", name+"-moves", name+"-stays"
	for _, claim := range []string{in, out, moves, stays} {
		w.volume(t, claim, volumeOptions{})
	}
	everything := w.witness(t, name+"-sentinel")
	c := newCurtain()
	requests, stop := w.manage(t, managerOptions{attachMode: mode, transport: c.transport})
	defer stop()
	leaving, moving, staying := w.want(t, mode, out, out, a), w.want(t, mode, moves, moves, a), w.want(t, mode, stays, stays, a)
	leaving.comes(t)
	moving.comes(t)
	attachment := staying.comes(t)
	w.attacher.set("pv-"+in, "", true)
	w.attacher.set("pv-"+out, "", true)
	coming := w.want(t, mode, in, in, a)
	leaving.drop(t)
	until(t, w, attachmentOf(in, a), "it is being attached", exists)
	until(t, w, attachmentOf(out, a), "it is being detached", func(va *storagev1.VolumeAttachment) bool { return va.DeletionTimestamp != nil })
	meanwhile := w.witness(t, name+"-sentinel-2")
	requests.reset()

	c.draw(resources...)
	c.await(t)
	w.attacher.set("pv-"+in, "", false)
	w.attacher.set("pv-"+out, "", false)
	until(t, w, attachmentOf(in, a), "it is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	gone(t, w, attachmentOf(out, a))
	// The pod that comes has the name of the one that went, as in a StatefulSet.
	moving.drop(t)
	moved := w.want(t, mode, moves, moves, b)
	c.open()

	coming.comes(t)
	leaving.leaves(t)
	moving.leaves(t)
	moved.comes(t)
	w.life(t, name+"-after", a)
	// One that is cut before it has seen anything does not go on, but begins anew.
	if c.expired == 0 {
		t.Error("no watch was to go on from a version that was too old")
	}
	if n, what := requests.writes(); n > 60 {
		t.Errorf("%d writes to make up for it: %s", n, what)
	}
	story := meanwhile.seenSoFar()
	for _, x := range []*wanted{coming, moved, staying} {
		x.drop(t)
		x.leaves(t)
	}
	stop()
	listed := []*storagev1.VolumeAttachment{attachment}
	if mode == controller.Coexist {
		listed = nil
	}
	wrong := append(judge(everything.story(t.Context())), undisturbed(story, []*storagev1.VolumeAttachment{attachment}, listed)...)
	for _, what := range wrong {
		t.Error(what)
	}
}
