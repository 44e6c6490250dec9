/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Kubernetes has moved the plugins that were once built into it to CSI drivers, for good. A PersistentVolume that
// still has the source of such a plugin is used, and named, as the driver's volume that it translates to.
var translator = csitranslation.New()

// Translated returns pv with the CSI source, and the access modes, that its source translates to. The source itself
// stays beside them and shows that it was translated (Migrated). A volume with nothing to translate is returned as it
// is, and so is one whose source cannot be translated, with an error that says why. The translation goes by labels
// and annotations too, so it comes before those are dropped.
func Translated(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if pv.Spec.CSI != nil || !Migrated(pv) {
		return pv, nil
	}
	csi, err := translator.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil {
		return pv, fmt.Errorf("its source translates to no CSI volume: %w", err)
	}
	translated := pv.DeepCopy()
	translated.Spec.CSI, translated.Spec.AccessModes = csi.Spec.CSI, csi.Spec.AccessModes
	return translated, nil
}

// Migrated reports whether pv has the source of a plugin that was once built into Kubernetes.
func Migrated(pv *corev1.PersistentVolume) bool { return translator.IsPVMigratable(pv) }

// MigratedInline reports whether a volume in a pod itself has such a source.
func MigratedInline(v *corev1.Volume) bool { return translator.IsInlineMigratable(v) }

// Inline returns what a volume in pod itself translates to, as a PersistentVolume that cannot be taken
// for one of the API: it has no name, and its claim is the pod's volume (InlineClaim). It returns nil for any other
// volume.
func Inline(pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	if !MigratedInline(v) {
		return nil, nil
	}
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(), v, pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("its source translates to no CSI volume: %w", err)
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: InlineClaim(pod.Name, v.Name), UID: pod.UID,
	}
	return &corev1.PersistentVolume{Spec: pv.Spec}, nil
}
