/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestSinceTheStartEverythingIsLetThroughButWhatWasThere(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	if sinceStart.Create(event.CreateEvent{Object: claim, IsInInitialList: true}) {
		t.Error("a claim that was there is let through, want not")
	}
	if !sinceStart.Create(event.CreateEvent{Object: claim}) ||
		!sinceStart.Update(event.UpdateEvent{ObjectOld: claim, ObjectNew: claim}) ||
		!sinceStart.Delete(event.DeleteEvent{Object: claim}) {
		t.Error("a claim that comes, changes or goes is not let through, want all three")
	}
}
