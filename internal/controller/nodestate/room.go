/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"encoding/json"
	"errors"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// SizeLimit of a NodeVolumeState in JSON. Below what the API server stores (1.5 MiB), so that a Detaching and the
// agent's own lines always fit.
const SizeLimit = 1 << 20

// lineReserve is what the agent's line of a volume takes beside the volume's name when it is cut to what safety needs.
const lineReserve = 320

var (
	// ErrTooLarge: a new entry would let the NodeVolumeState grow beyond SizeLimit.
	ErrTooLarge = errors.New("the node's NodeVolumeState is full")
	// ErrShare: with the new entry its namespace would have more of the NodeVolumeState than is free.
	ErrShare = errors.New("the namespace has as much of the node's NodeVolumeState as is free")
)

// refusal is why there is no room for the entries that next has and nvs lacks; nil if there is. A change that adds no
// entry is never refused.
//
// A namespace may add an entry while its entries take no more than what stays free. So one namespace takes at most half
// of the object and n of them n/(n+1), and one that has little yet always finds room.
func refusal(nvs, next *volumesv1alpha1.NodeVolumeState) error {
	added := addedEntries(nvs, next)
	if len(added) == 0 {
		return nil
	}
	free := SizeLimit - Size(next)
	if free < 0 {
		return ErrTooLarge
	}
	if free >= SizeLimit/2 {
		return nil
	}
	for _, e := range added {
		if share(next, e.Namespace) > free {
			return ErrShare
		}
	}
	return nil
}

// crowded is up to how many entries nobody asks whether there is room for another one before it is attached.
const crowded = 256

// RoomFor is why there is no room for another entry; nil if there is. nvs may be old or nil: the write of the entry has
// the last word. Before that, this keeps the driver from attaching in vain.
func RoomFor(nvs *volumesv1alpha1.NodeVolumeState, entry volumesv1alpha1.NodeAttachment) error {
	if nvs == nil || len(nvs.Spec.Attachments) < crowded {
		return nil
	}
	next := *nvs
	next.Spec.Attachments = append(slices.Clone(nvs.Spec.Attachments), entry)
	return refusal(nvs, &next)
}

// addedEntries are the Attached entries of next that nvs has not.
func addedEntries(nvs, next *volumesv1alpha1.NodeVolumeState) []*volumesv1alpha1.NodeAttachment {
	attached := map[string]bool{}
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		attached[e.VolumeName] = e.State == volumesv1alpha1.AttachmentAttached
	}
	var added []*volumesv1alpha1.NodeAttachment
	for i := range next.Spec.Attachments {
		e := &next.Spec.Attachments[i]
		if e.State == volumesv1alpha1.AttachmentAttached && !attached[e.VolumeName] {
			added = append(added, e)
		}
	}
	return added
}

// share is what the namespace's entries take. Those of an earlier version name no namespace, and count for none.
func share(nvs *volumesv1alpha1.NodeVolumeState, namespace string) int {
	taken := 0
	for i := range nvs.Spec.Attachments {
		if e := &nvs.Spec.Attachments[i]; e.Namespace == namespace && namespace != "" {
			taken += jsonSize(e) + reserve(e)
		}
	}
	return taken
}

// Size of the object, with room for the line of each entry.
func Size(nvs *volumesv1alpha1.NodeVolumeState) int {
	rest := *nvs
	rest.Status.Volumes = nil
	reserved := 0
	for i := range nvs.Spec.Attachments {
		reserved += reserve(&nvs.Spec.Attachments[i])
	}
	return jsonSize(&rest) + max(reserved, jsonSize(nvs.Status.Volumes))
}

func reserve(e *volumesv1alpha1.NodeAttachment) int { return lineReserve + len(e.VolumeName) }

func jsonSize(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return SizeLimit + 1
	}
	return len(b)
}
