/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// OrEmpty returns nvs, or an empty node state if there is none.
func OrEmpty(nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	if nvs == nil {
		return &volumesv1alpha1.NodeVolumeState{}
	}
	return nvs
}

// RemoveEntry removes the volume's entry, if it is there.
func RemoveEntry(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	nvs.Spec.Attachments = slices.DeleteFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
		return a.VolumeName == volumeName
	})
}

// EntryOf is everything that the node needs to mount the intent's volume, as an Attached entry without its attachment.
func EntryOf(f *Facts, i *Intent) volumesv1alpha1.NodeAttachment {
	s := i.Result.Source
	e := volumesv1alpha1.NodeAttachment{
		VolumeName:           f.Volume,
		State:                volumesv1alpha1.AttachmentAttached,
		Namespace:            i.Object.Namespace,
		Driver:               s.Driver,
		VolumeHandle:         s.Handle,
		PersistentVolumeName: s.PersistentVolume,
		VolumeMode:           s.Mode,
		AccessModes:          s.AccessModes,
		FSType:               s.FSType,
		MountOptions:         s.MountOptions,
		VolumeAttributes:     s.Attributes,
		FSGroupPolicy:        f.FSGroupPolicy,
		SELinuxMount:         f.SELinuxMount,
		NodeStageSecretRef:   s.StageSecret,
		NodePublishSecretRef: s.PublishSecret,
		NodeExpandSecretRef:  s.ExpandSecret,
	}
	if s.Capacity != nil {
		e.Capacity = s.Capacity
		e.ExpandFrom = volume.ExpandFrom(*s.Capacity, i.Claim)
	}
	return *e.DeepCopy()
}

// WithAttachment completes e with the attachment that it speaks of.
func WithAttachment(e volumesv1alpha1.NodeAttachment, va *storagev1.VolumeAttachment) volumesv1alpha1.NodeAttachment {
	e.AttachmentUID, e.AttachmentName, e.PublishContext = va.UID, va.Name, va.Status.AttachmentMetadata
	return e
}

// Stale reports whether the Attached entry differs from the volume's source, as its capacity does after an expansion.
// An entry for another PersistentVolume with the same handle stays as long as there is an intent for that one.
func Stale(f *Facts, n *Node, i *Intent) bool {
	if i.Result.Source == nil || n.Entry.PersistentVolumeName != i.Result.Source.PersistentVolume &&
		n.has(n.Entry.PersistentVolumeName) {
		return false
	}
	e := EntryOf(f, i)
	e.AttachmentUID, e.AttachmentName, e.PublishContext = n.Entry.AttachmentUID, n.Entry.AttachmentName,
		n.Entry.PublishContext
	e.Namespace = n.Entry.Namespace // an entry of an earlier version has none, and needs none
	if a := n.AttachmentOf(n.Entry.AttachmentUID); a != nil && a.Attached {
		// A volume that was attached again may be another device.
		e.PublishContext = a.PublishContext
	}
	return !equality.Semantic.DeepEqual(e, *n.Entry)
}

// has reports whether an intent on the node is for the PersistentVolume of that name.
func (n *Node) has(persistentVolume string) bool {
	return slices.ContainsFunc(append(slices.Clone(n.Wanted), n.Leaving...), func(i *Intent) bool {
		if i.Result.OK {
			return i.Result.Pins.VolumeName == persistentVolume
		}
		return i.Object.Status.VolumeName == persistentVolume
	})
}

// PutEntry replaces the volume's entry in nvs, or adds it.
func PutEntry(nvs *volumesv1alpha1.NodeVolumeState, e volumesv1alpha1.NodeAttachment) {
	if old := handshake.AttachmentOf(nvs, e.VolumeName); old != nil {
		*old = e
		return
	}
	nvs.Spec.Attachments = append(nvs.Spec.Attachments, e)
}

// DetachingEntry is old, or a new entry where there is none or it is over, as Detaching for this attachment.
func DetachingEntry(
	f *Facts, old *volumesv1alpha1.NodeAttachment, uid types.UID, name string, evidence volumesv1alpha1.DetachEvidence,
) volumesv1alpha1.NodeAttachment {
	e := volumesv1alpha1.NodeAttachment{
		VolumeName: f.Volume, Driver: f.Driver, VolumeHandle: f.VolumeHandle, AttachmentUID: uid, AttachmentName: name,
	}
	if old != nil && old.AttachmentUID == uid {
		e = *old.DeepCopy()
	}
	evidence.Message = status.Shorten(evidence.Message, volumesv1alpha1.MaxMessageLength)
	if !CutsAccess(e.Evidence) { // what is known of a detach stays where it comes to rest on other evidence
		e.DetachedTime, e.Protocol = nil, volumesv1alpha1.AttachmentProtocol{}
	}
	e.State, e.Evidence = volumesv1alpha1.AttachmentDetaching, &evidence
	return e
}
