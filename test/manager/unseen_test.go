/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/status"
)

// TestAnIntentThatNoAdmissionPolicyHasSeenUsesAnAttachedVolume: the API server may know no policy that sets finalizers,
// and then the manager sets them. The volume is attached on the node already, for an intent of every kind.
func TestAnIntentThatNoAdmissionPolicyHasSeenUsesAnAttachedVolume(t *testing.T) {
	w := newWorld(t)
	attached, published := volumesv1alpha1.DesiredAttached, volumesv1alpha1.DesiredPublished
	for mode, name := range map[controller.AttachMode]string{controller.Coexist: "beside", controller.Replace: "alone"} {
		t.Run(string(mode), func(t *testing.T) {
			_, stop := w.manage(t, managerOptions{attachMode: mode})
			defer stop()
			for _, first := range []volumesv1alpha1.DesiredState{attached, published} {
				for _, second := range []volumesv1alpha1.DesiredState{attached, published} {
					w.usesAnAttachedVolume(t, name, first, second)
				}
			}
		})
	}
}

func (w *world) usesAnAttachedVolume(t *testing.T, name string, first, second volumesv1alpha1.DesiredState) {
	t.Helper()
	node := strings.ToLower(name + "-" + string(first) + "-" + string(second))
	w.managedNode(t, node)
	w.volume(t, node, volumeOptions{})
	earlier, later := newIntent(node+"-1", node, node), newIntent(node+"-2", node, node)
	earlier.Spec.DesiredState, later.Spec.DesiredState = first, second
	if first == volumesv1alpha1.DesiredAttached {
		earlier.Finalizers = nil
	}
	later.Finalizers = nil
	w.create(t, earlier)
	until(t, w, earlier, "the earlier intent is Ready", isReady)
	w.create(t, later)
	until(t, w, later, "the intent that no policy has seen is Ready", isReady)
	if needs := second != volumesv1alpha1.DesiredAttached; status.Finalized(later) != needs {
		t.Errorf("finalizers of intent %s, which wants %s: %q; want that of Hawser: %t", later.Name, second, later.Finalizers,
			needs)
	}
	w.delete(t, earlier)
	gone(t, w, earlier)
	w.releaseAndDetach(t, later, node)
}
