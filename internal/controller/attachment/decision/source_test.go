/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// share is a made-up source: no controller attaches it, and it has no PersistentVolume.
func share() *volume.Source {
	return &volume.Source{
		UniqueName: "share^export", Driver: "share", Handle: "export", Mode: corev1.PersistentVolumeFilesystem,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, MountOptions: []string{"soft"},
	}
}

func TestASourceThatIsNeitherAttachedNorHasAPersistentVolumeIsMounted(t *testing.T) {
	f := &Facts{Volume: share().UniqueName, Nodes: []*Node{on("a", wanted("i"), noDriver), on("b", wanted("j"))}}
	Describe(f, []*volume.Source{share()})
	for _, n := range f.Nodes {
		n.Wanted[0].Result.Source = share()
	}
	if f.AttachRequired || f.Exclusive || len(f.Bound) > 0 || f.Driver != "share" || f.VolumeHandle != "export" {
		t.Fatalf("facts of volume %s: %+v, want driver share, handle export, not attached, exclusive or bound", f.Volume, f)
	}
	steps := electAndDecide(f, handshake.Protocol{})
	if len(steps) != 2 || describeStep(steps[0]) != "Confirm a" || describeStep(steps[1]) != "Confirm b" {
		t.Fatalf("steps for volume %s: %v, want both nodes to get it at once, without an attachment", f.Volume, steps)
	}
	e := EntryOf(f, f.Nodes[0].Wanted[0])
	if e.PersistentVolumeName != "" || e.Driver != "share" || e.VolumeHandle != "export" || e.MountOptions[0] != "soft" ||
		e.State != volumesv1alpha1.AttachmentAttached {
		t.Errorf("entry of volume %s: %+v, want Attached, driver share, handle export, option soft, no PersistentVolume",
			f.Volume, e)
	}
	n := f.Nodes[0]
	e.AttachmentUID = "1"
	n.Entry, n.State.Entry = &e, handshake.Entry{State: handshake.Attached, UID: types.UID("1")}
	if Stale(f, n, n.Wanted[0]) {
		t.Errorf("new entry of volume %s on node a is stale, want it current", f.Volume)
	}
	if n.Wanted[0].Result.Pins.VolumeName = ""; FindingOf(f, n,
		n.Wanted[0]).Reason != volumesv1alpha1.ReasonAttachNotRequired {
		t.Errorf("finding for volume %s on node a: %+v, want reason %s", f.Volume, FindingOf(f, n, n.Wanted[0]),
			volumesv1alpha1.ReasonAttachNotRequired)
	}
	n.Wanted = nil
	if steps := electAndDecide(f, handshake.Protocol{}); len(steps) != 1 || describeStep(steps[0]) != "MarkDetaching a" {
		t.Errorf("steps for volume %s: %v, want node a to lose it", f.Volume, steps)
	}
}
