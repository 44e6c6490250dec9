/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
)

// theNextManagerContinuesAfterADeathAtAnyWrite attaches, moves and detaches an exclusive volume again and again, with
// the manager dying before its first write, its second, and so on until it gets through; another one takes over.
func theNextManagerContinuesAfterADeathAtAnyWrite(t *testing.T, w *world) {
	w.node(t, "crash-a")
	w.node(t, "crash-b")
	w.crash(t, managerOptions{}, func(name string) { w.cycle(t, name, "crash-a", "crash-b") })
}

// theNextManagerContinuesForPodsAfterADeathAtAnyWrite does so with a volume that a pod wants and its kubelet uses.
func theNextManagerContinuesForPodsAfterADeathAtAnyWrite(t *testing.T, w *world) {
	w.managedNode(t, "crash")
	recorder := w.record(t, "crash-sentinel")
	w.crash(t, replace, func(name string) {
		w.volume(t, name, volumeOptions{})
		x := w.wantAttached(t, controller.Replace, name, name, "crash")
		x.awaitAttached(t)
		w.kubeletUses(t, "crash", name)
		x.drop(t)
		w.kubeletUses(t, "crash")
		x.awaitDetached(t)
		w.podIntents(t, x.pod)
	})
	for _, wrong := range checkHistory(recorder.history(t.Context())) {
		t.Errorf("history of the crashes: %s; want no violation", wrong)
	}
}

// crash lets a manager die at its first write in a cycle, at its second in another one, and so on.
func (w *world) crash(t *testing.T, o managerOptions, cycle func(name string)) {
	t.Helper()
	for writes := 0; ; writes++ {
		name := fmt.Sprintf("crash-%d", writes)
		f := &killSwitch{left: writes, dead: make(chan struct{})}
		mortal := o
		mortal.newClient = f.client
		_, stop := w.manage(t, mortal)
		over := make(chan struct{})
		replaced := make(chan func(), 1)
		go func() {
			select {
			case <-f.dead:
				stop()
				_, stop := w.manage(t, o)
				replaced <- stop
			case <-over:
				replaced <- stop
			}
		}()
		cycle(name)
		close(over)
		(<-replaced)()
		if f.what == "" {
			t.Logf("the whole way takes %d writes at most", writes)
			return
		}
		t.Logf("died at write %d: %s", writes+1, f.what)
		if t.Failed() {
			return
		}
	}
}

// cycle brings a volume to one node, then to another, and away, and deletes its claim.
func (w *world) cycle(t *testing.T, name, from, to string) {
	t.Helper()
	claim := w.volume(t, name, volumeOptions{})
	first := w.intent(t, name+"-first", from, name)
	until(t, w, first, "the first intent is Ready", isReady)
	w.delete(t, first)
	second := w.intent(t, name+"-second", to, name)
	until(t, w, second, "the second intent is Ready", isReady)
	until(t, w, attachmentOf(name, from), "the volume is on one node only", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va)
	})
	w.delete(t, second)
	gone(t, w, first)
	gone(t, w, second)
	gone(t, w, attachmentOf(name, to))
	w.delete(t, claim)
	gone(t, w, claim)
	for _, node := range []string{from, to} {
		until(t, w, stateOf(node), "the node is empty", func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Spec.Attachments) == 0 && len(s.Status.Volumes) == 0
		})
	}
}
