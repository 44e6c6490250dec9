/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package volume holds what the cluster side derives from a PersistentVolume alone: names,
// exclusivity, and the line that a node needs to mount it.
package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const uniqueNamePrefix = "kubernetes.io/csi/"

// NodeIDAnnotation on a VolumeAttachment is the node's ID in the driver by which the external-attacher attached it.
const NodeIDAnnotation = "csi.alpha.kubernetes.io/node-id"

// UniqueName is the volume's name in NodeVolumeStates, the one that the kubelet would use.
func UniqueName(driver, handle string) string {
	return uniqueNamePrefix + driver + "^" + handle
}

// IsUniqueName reports whether the name of a volume in the status of a Node is one of a CSI driver's volume.
func IsUniqueName(name string) bool { return strings.HasPrefix(name, uniqueNamePrefix) }

// Split takes a unique name apart, for a volume that has left nothing else. A handle may hold any character, a
// driver's name no '^'.
func Split(uniqueName string) (driver, handle string) {
	driver, handle, _ = strings.Cut(strings.TrimPrefix(uniqueName, uniqueNamePrefix), "^")
	return driver, handle
}

// UniqueNameOf is the unique name of pv; empty when it is not a CSI volume.
func UniqueNameOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return UniqueName(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle)
}

// AttachmentName is the name that upstream gives the VolumeAttachment of a volume and a node.
// It is shared on purpose: the same name makes the API server the judge of which was first.
func AttachmentName(driver, handle, node string) string {
	return "csi-" + sum(handle+driver+node)
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// Exclusive reports whether the volume may be usable on one node only.
func Exclusive(pv *corev1.PersistentVolume) bool { return !Shared(pv.Spec.AccessModes) }

// Shared reports whether a volume of these access modes may be usable on several nodes.
func Shared(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, corev1.ReadWriteMany) || slices.Contains(modes, corev1.ReadOnlyMany)
}

// SingleUser reports whether the volume may be used by one intent only.
func SingleUser(pv *corev1.PersistentVolume) bool {
	return slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteOncePod)
}

// Mode of pv; Filesystem is the default.
func Mode(pv *corev1.PersistentVolume) corev1.PersistentVolumeMode {
	if pv.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *pv.Spec.VolumeMode
}

// ExpandFrom is the capacity that the claim's status records, if that is less than the volume's: no node has expanded
// the volume yet. Otherwise nil.
func ExpandFrom(capacity resource.Quantity, claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	if claim == nil {
		return nil
	}
	recorded, known := claim.Status.Capacity[corev1.ResourceStorage]
	if !known || recorded.Cmp(capacity) >= 0 {
		return nil
	}
	return &recorded
}

// Refused reports whether what counts as attached could not be attached again: its attacher found that the driver does
// not list it on the node's present ID.
func Refused(va *storagev1.VolumeAttachment) bool {
	return va.DeletionTimestamp == nil && va.Status.Attached && va.Status.AttachError != nil
}
