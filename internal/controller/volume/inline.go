/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// InlineClaim takes the place of a claim where a volume is in the pod itself. No claim's name has a colon.
func InlineClaim(pod, volume string) string { return pod + ":" + volume }

// InlineOf returns the volumes in pod itself and have a driver's volume behind them.
func InlineOf(pod *corev1.Pod) []*corev1.PersistentVolume {
	var volumes []*corev1.PersistentVolume
	for i := range pod.Spec.Volumes {
		if pv, err := Inline(pod, &pod.Spec.Volumes[i]); err == nil && pv != nil {
			volumes = append(volumes, pv)
		}
	}
	return volumes
}

// AttachmentSource is how a VolumeAttachment names pv: by its name or, where it has none (Inline), by what it says.
func AttachmentSource(pv *corev1.PersistentVolume) storagev1.VolumeAttachmentSource {
	if pv.Name != "" {
		return storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}
	}
	spec := pv.Spec.DeepCopy()
	spec.ClaimRef = nil
	return storagev1.VolumeAttachmentSource{InlineVolumeSpec: spec}
}

// AttachedUniqueName is the unique name of the volume that an attachment says itself: because it has the volume in
// itself, or because Hawser wrote it down for when the PersistentVolume is gone. Empty where it says none, or one of
// another driver.
func AttachedUniqueName(va *storagev1.VolumeAttachment) string {
	if name := InlineUniqueName(va); name != "" {
		return name
	}
	name := va.Annotations[volumesv1alpha1.VolumeNameAnnotation]
	if driver, handle := Split(name); driver != va.Spec.Attacher || handle == "" {
		return ""
	}
	return name
}

// InlineUniqueName is the unique name of the volume that an attachment says itself; empty where it names a
// PersistentVolume.
func InlineUniqueName(va *storagev1.VolumeAttachment) string {
	spec := va.Spec.Source.InlineVolumeSpec
	if spec == nil || spec.CSI == nil {
		return ""
	}
	return UniqueName(spec.CSI.Driver, spec.CSI.VolumeHandle)
}
