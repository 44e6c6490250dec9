/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/controller/volume"
)

// diskVolume makes a volume of a plugin of old, and what upstream left of it: an attachment to the node that is not
// attached. It returns the attachment, and the volume's unique name.
func (w *world) diskVolume(t *testing.T, name, node string) (*storagev1.VolumeAttachment, corev1.UniqueVolumeName) {
	t.Helper()
	claim := newClaim(name, volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Labels = map[string]string{corev1.LabelTopologyZone: "zone-1"}
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name, FSType: "ext4"},
	}
	w.create(t, pv)
	w.bind(t, claim)
	handle := "projects/UNSPECIFIED/zones/zone-1/disks/" + name
	va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
		Attacher: diskDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
	}}
	va.Name = volume.AttachmentName(diskDriver, handle, node)
	w.create(t, va)
	return va, corev1.UniqueVolumeName(volume.UniqueName(diskDriver, handle))
}

func anAttachOfUpstreamForABuiltInPluginIsFinishedOrUndone(t *testing.T, w *world) {
	w.managedNode(t, "old")
	w.addDriver(t, "old", diskDriver)
	wanted, name := w.diskVolume(t, "old-wanted", "old")
	left, _ := w.diskVolume(t, "old-left", "old")
	p := w.pod(t, "old-wanted", "old", "old-wanted")
	uid := wanted.UID
	_, stop := w.manage(t, replace)
	defer stop()
	gone(t, w, left)
	until(t, w, wanted, "it is held", held)
	w.attaches(t, wanted)
	until(t, w, nodeNamed("old"), "the kubelet finds it listed", func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
	})
	if wanted.UID != uid {
		t.Errorf("attachment %s has UID %s, want that of upstream's, %s", wanted.Name, wanted.UID, uid)
	}
	w.kill(t, p)
	gone(t, w, wanted)
}
