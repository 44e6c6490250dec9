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
			t.Errorf("locked %t: exclusive %t, shared %t", locked, f.Exclusive, f.Shared)
		}
		// Once nothing has to do with it, the lock goes.
		if Collectable(f) != locked {
			t.Errorf("locked %t: collectable %t", locked, Collectable(f))
		}
		if f.Nodes = []*Node{on("a", wanted("i"))}; Collectable(f) {
			t.Error("collected while it is wanted")
		}
	}
}
