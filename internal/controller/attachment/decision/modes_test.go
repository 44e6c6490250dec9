/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestAVolumeWithALockIsExclusiveWhateverItsAccessModes(t *testing.T) {
	pv := persistentVolume()
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for _, locked := range []bool{true, false} {
		f := &Facts{Volume: "v", Lock: handshake.Lock{Exists: locked, Holder: "a"}}
		Describe(f, []*volume.Source{volume.SourceOf(pv)})
		if f.Exclusive != locked || !f.Shared {
			t.Errorf("ReadWriteMany volume v with a lock %t: exclusive %t, shared %t; want %t, true", locked, f.Exclusive,
				f.Shared, locked)
		}
		// Once nothing has to do with it, the lock goes.
		if Collectable(f) != locked {
			t.Errorf("volume v with a lock %t and nothing else: collectable %t, want %t", locked, Collectable(f), locked)
		}
		if f.Nodes = []*Node{on("a", wanted("i"))}; Collectable(f) {
			t.Error("lock of volume v, which intent i wants, is collectable, want it kept")
		}
	}
}
