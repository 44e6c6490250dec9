/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// NodeOf is volumeName's part of nvs; the zero Node when nvs is nil.
func NodeOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) Node {
	if nvs == nil {
		return Node{}
	}
	n := Node{
		Exists:   true,
		Reported: nvs.Status.Protocol.ObservedUID != "" && nvs.Status.Protocol.ObservedUID == nvs.UID,

		Unconfirmed: nvs.Status.Protocol.Session != nvs.Spec.Protocol.ConfirmedSession,
	}
	n.Boot = nvs.Status.BootID
	n.Declared = declarationsOf(nvs)
	if a := AttachmentOf(nvs, volumeName); a != nil {
		n.Entry = Entry{
			State: State(a.State), UID: a.AttachmentUID, Detached: a.DetachedTime != nil,
			Boot: a.Protocol.UnlistedBootID, Asked: a.Protocol.RebootGeneration > 0,
		}
		p, observed := a.Protocol, nvs.Status.ObservedGeneration
		n.Looked = n.Reported && p.UnlistedGeneration > 0 && observed >= p.UnlistedGeneration
		n.LookedAgain = n.Reported && p.RebootGeneration > 0 && observed >= p.RebootGeneration
		if a.Evidence != nil && a.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
			n.Entry.Forced = true
		}
	}
	if v := VolumeOf(nvs, volumeName); v != nil {
		n.Use = Use{UID: v.AttachmentUID, InUse: v.InUse, Waiting: v.Waiting}
	}
	return n
}

// declarationsOf nvs, in order of UID.
func declarationsOf(nvs *volumesv1alpha1.NodeVolumeState) []Declaration {
	var declared []Declaration
	for key, reason := range nvs.Annotations {
		if uid, ok := strings.CutPrefix(key, volumesv1alpha1.DeclaredReleasedPrefix); ok {
			declared = append(declared, Declaration{UID: types.UID(uid), Reason: reason})
		}
	}
	slices.SortFunc(declared, func(a, b Declaration) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return declared
}

// AttachmentOf returns volumeName's entry in nvs.spec, or nil. It points into nvs.
func AttachmentOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) *volumesv1alpha1.NodeAttachment {
	i := slices.IndexFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
		return a.VolumeName == volumeName
	})
	if i < 0 {
		return nil
	}
	return &nvs.Spec.Attachments[i]
}

// VolumeOf returns volumeName's line in nvs.status, or nil. It points into nvs. Where a hand has made two of it, one
// that says in use counts.
func VolumeOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) *volumesv1alpha1.NodeVolume {
	var found *volumesv1alpha1.NodeVolume
	for i := range nvs.Status.Volumes {
		if v := &nvs.Status.Volumes[i]; v.VolumeName == volumeName && (found == nil || v.InUse && !found.InUse) {
			found = v
		}
	}
	return found
}

// AttachmentFrom is va as the protocol sees it; the zero Attachment when va is nil.
func AttachmentFrom(va *storagev1.VolumeAttachment) Attachment {
	if va == nil {
		return Attachment{}
	}
	ours := func(f string) bool { return f == volumesv1alpha1.ForcedAwayFinalizer }
	terminating := va.DeletionTimestamp != nil
	return Attachment{
		Exists:      true,
		UID:         va.UID,
		Attached:    va.Status.Attached,
		Terminating: terminating,
		NameHeld:    slices.ContainsFunc(va.Finalizers, ours),
		Unpublished: terminating && !slices.ContainsFunc(va.Finalizers, func(f string) bool { return !ours(f) }),
	}
}
