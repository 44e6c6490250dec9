/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Source is what attaching and mounting a volume need, whatever declares the volume.
type Source struct {
	// UniqueName is the volume's name in NodeVolumeStates.
	UniqueName string
	Driver     string
	Handle     string
	// Attach: a node can mount the volume only after a controller has attached it. The driver may declare that it needs
	// no attach.
	Attach bool
	// Attachment is how a VolumeAttachment names the volume.
	Attachment storagev1.VolumeAttachmentSource
	// PersistentVolume is the name of the volume's PersistentVolume; empty if it has none.
	PersistentVolume string
	// Claim that the volume is bound to; nil if it is bound to none.
	Claim *types.NamespacedName

	Mode         corev1.PersistentVolumeMode
	AccessModes  []corev1.PersistentVolumeAccessMode
	ReadOnly     bool
	FSType       string
	MountOptions []string
	Attributes   map[string]string
	Capacity     *resource.Quantity

	StageSecret, PublishSecret, ExpandSecret *corev1.SecretReference
}

// SourceOf is the source that pv declares; nil if it declares none that Hawser can use. It shares memory with pv.
func SourceOf(pv *corev1.PersistentVolume) *Source {
	csi := pv.Spec.CSI
	if csi == nil {
		return nil
	}
	s := &Source{
		UniqueName: UniqueName(csi.Driver, csi.VolumeHandle), Driver: csi.Driver, Handle: csi.VolumeHandle,
		Attach: true, Attachment: AttachmentSource(pv), PersistentVolume: pv.Name,
		Mode: Mode(pv), AccessModes: pv.Spec.AccessModes, ReadOnly: csi.ReadOnly, FSType: csi.FSType,
		MountOptions: pv.Spec.MountOptions, Attributes: csi.VolumeAttributes,
		StageSecret: csi.NodeStageSecretRef, PublishSecret: csi.NodePublishSecretRef, ExpandSecret: csi.NodeExpandSecretRef,
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		s.Claim = &types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	if capacity, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok {
		s.Capacity = &capacity
	}
	return s
}

// DriverOf is the name of the driver that pv's source needs; empty if Hawser cannot use the source.
func DriverOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.Driver
}

// Exclusive reports whether the volume may be usable on one node only.
func (s *Source) Exclusive() bool { return !Shared(s.AccessModes) }
