/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import "slices"

// lost are the attachments that the driver does not list as published. A volume that it says nothing of, and a node
// of which its name is not known, are no ground for that.
func lost(s *snapshot, volumes listing) []attachment {
	var found []attachment
	for _, a := range s.attached {
		published, listed := volumes[a.handle]
		if listed && len(a.ids) > 0 && !slices.ContainsFunc(a.ids, func(id string) bool {
			return slices.Contains(published, id)
		}) {
			found = append(found, a)
		}
	}
	return found
}

// unexpected are the publications that the driver lists and without a VolumeAttachment, neither before
// nor after it was asked. Volumes and nodes that both are not of this cluster belong to others.
func unexpected(before, after *snapshot, volumes listing) map[publication]bool {
	found := map[publication]bool{}
	for handle, ids := range volumes {
		for _, id := range ids {
			p := publication{handle, id}
			if !before.accountsFor(p) && !after.accountsFor(p) && (after.volumes[handle] != "" || after.nodes[id] != "") {
				found[p] = true
			}
		}
	}
	return found
}

func (s *snapshot) accountsFor(p publication) bool {
	return s.vague || s.claimed[p] || s.vagueHandles[p.handle] || s.vagueNodes[p.id]
}
