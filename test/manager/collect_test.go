/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// TestLocksAreCollected: the lock of an exclusive volume is deleted after the volume.
func TestLocksAreCollected(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"when their volume is deleted", theLockOfADeletedVolumeIsCollected},
		{"a move that nothing waits for any more is finished", aMoveThatNothingWaitsForIsFinished},
		{"not before the last node has released the volume", aLockIsKeptUntilTheLastNodeHasReleased},
		{"at the start, when the volume was deleted meanwhile", theLockOfAVolumeDeletedWhileNoManagerRanIsCollected},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// aMoveThatNothingWaitsForIsFinished: the node that the lock was moved from cannot be fenced for a while, and
// meanwhile the intent that waited for the lock is deleted.
func aMoveThatNothingWaitsForIsFinished(t *testing.T, w *world) {
	var unwritable atomic.Bool
	w.manage(t, managerOptions{transport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if unwritable.Load() && describeRequest(r) == "PUT nodevolumestates" && nameIn(r) == "left-early-a" {
				return nil, errLost
			}
			return next.RoundTrip(r)
		})
	}})
	w.node(t, "left-early-a")
	w.node(t, "left-early-b")
	w.volume(t, "left-early", volumeOptions{})
	first := w.wantAttached(t, controller.Coexist, "left-early", "left-early", "left-early-a")
	first.awaitAttached(t)
	first.drop(t)
	first.awaitDetached(t)
	unwritable.Store(true)
	second := w.wantAttached(t, controller.Coexist, "left-early", "left-early", "left-early-b")
	w.moving(t, "left-early", true)
	second.drop(t)
	gone(t, w, second.intent)
	unwritable.Store(false)
	w.moving(t, "left-early", false)
}

// moving waits until the lock of the volume is being moved, or is not.
func (w *world) moving(t *testing.T, name string, want bool) {
	t.Helper()
	until(t, w, locksWith(name), fmt.Sprintf("being moved is %t", want), func(object *corev1.ConfigMap) bool {
		locks, err := exclusive.Locks(object)
		lock, there := locks[uniqueName(name)]
		return err == nil && there && (lock.MovedFrom != "") == want
	})
}

// discard deletes claim and volume, as the PersistentVolume controller does for the reclaim policy Delete.
func (w *world) discard(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	w.delete(t, claim)
	gone(t, w, claim)
	w.discardVolume(t, claim.Name)
}

func (w *world) discardVolume(t *testing.T, claim string) {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	w.delete(t, pv)
	w.change(t, pv, func() { pv.Finalizers = nil })
}

func theLockOfADeletedVolumeIsCollected(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "collected")
	claim := w.volume(t, "collected", volumeOptions{})
	intent := w.intent(t, "collected", "collected", "collected")
	until(t, w, intent, "the intent is Ready", isReady)
	w.releaseAndDetach(t, intent, "collected")
	requests.reset()
	w.discard(t, claim)
	w.lockGone(t, "collected")
	until(t, w, stateOf("collected"), "the last holder is fenced", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Spec.Protocol.Fences == 1
	})
	// The first is the finalizer of the PersistentVolumeClaim.
	if n, what := requests.writes(); n > 4 {
		t.Errorf("%d writes to collect the lock of volume collected, want at most 4: %s", n, what)
	}
	// A volume of that handle may come back, anywhere.
	w.node(t, "collected-other")
	w.volume(t, "collected", volumeOptions{})
	again := w.intent(t, "collected-again", "collected-other", "collected")
	until(t, w, again, "the volume is used again", isReady)
}

func aLockIsKeptUntilTheLastNodeHasReleased(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "keeping")
	w.volume(t, "keeping", volumeOptions{})
	intent := w.intent(t, "keeping", "keeping", "keeping")
	until(t, w, intent, "the intent is Ready", isReady)
	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	// The volume is removed by force while it is in use.
	w.discardVolume(t, "keeping")
	w.volume(t, "marker", volumeOptions{})
	marker := w.intent(t, "marker", "keeping", "marker")
	w.attached(t, marker)
	if w.lockOf(t, "keeping").Holder != "keeping" {
		t.Errorf("lock of volume keeping, which is in use: %+v; want holder keeping", w.lockOf(t, "keeping"))
	}
	a.set(func() { a.hangs = false })
	gone(t, w, intent)
	w.lockGone(t, "keeping")
}

func theLockOfAVolumeDeletedWhileNoManagerRanIsCollected(t *testing.T, w *world) {
	_, stop := w.manage(t, managerOptions{})
	w.node(t, "restarted")
	claim := w.volume(t, "restarted", volumeOptions{})
	intent := w.intent(t, "restarted", "restarted", "restarted")
	until(t, w, intent, "the intent is Ready", isReady)
	w.releaseAndDetach(t, intent, "restarted")
	w.delete(t, claim)
	gone(t, w, claim)
	stop()
	w.discardVolume(t, claim.Name)
	if w.lockOf(t, "restarted").Holder != "restarted" {
		t.Fatalf("lock of volume restarted without a manager: %+v; want holder restarted", w.lockOf(t, "restarted"))
	}
	w.manage(t, managerOptions{})
	w.lockGone(t, "restarted")
}
