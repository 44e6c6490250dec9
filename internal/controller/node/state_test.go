/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheStateOfAnAbsentNodeStaysWhileAnAttachmentIsLeft(t *testing.T) {
	nvs, held := stateOf("gone"), attachmentWithUID("1", "gone")
	held.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "now"}
	w := over(t, []client.Object{nvs, held}, []client.Object{nvs, held})
	if _, err := w.remove(t.Context(), nvs); err != nil || !w.state(t, "gone").DeletionTimestamp.IsZero() {
		t.Errorf("removing the state of a node with an attachment: error %v, state deleted at %v; want neither", err,
			w.state(t, "gone").DeletionTimestamp)
	}
}

func TestTheStateOfAnAbsentNodeIsDeletedOnlyAsItWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*volumesv1alpha1.NodeVolumeState)
		goes      bool
	}{
		"it is as it was":                {func(*volumesv1alpha1.NodeVolumeState) {}, true},
		"a volume was attached":          {attached("v", "1"), false},
		"another one was created by now": {func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.UID = "later" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			read, now := stateOf("gone"), stateOf("gone")
			c.meanwhile(now)
			w := over(t, []client.Object{read}, []client.Object{now})
			if now.UID == read.UID && !c.goes {
				now = w.state(t, "gone")
				now.Labels = map[string]string{"newer": "true"}
				if err := w.live.Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.remove(t.Context(), read); c.goes && err != nil || !c.goes && !apierrors.IsConflict(err) {
				t.Errorf("removing the state of a node that is gone: error %v, want a conflict: %t", err, !c.goes)
			}
			if deleted := !w.state(t, "gone").DeletionTimestamp.IsZero(); deleted != c.goes {
				t.Errorf("the state is deleted: %t, want %t", deleted, c.goes)
			}
		})
	}
}
