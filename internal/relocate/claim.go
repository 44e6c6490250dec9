/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// sameClaim checks that a replacement gets the volume of the intent. It gets the volume that the claim has now, and an
// intent that only attaches keeps no claim from being deleted and created again.
func (c *checker) sameClaim(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	claim, pinned := c.r.Claims[facts.Key(intent)], intent.Status.ClaimUID
	about := "claim " + intent.Namespace + "/" + claim.Ref.Name
	switch {
	case claim.Unread() != "":
		c.add(Unknown, about, "%s", claim.Unread())
	case claim.Err != nil:
		c.add(Refused, about, "it does not exist any more, so no replacement gets volume %s", intent.Status.VolumeName)
	case claim.Found && pinned != "" && claim.Value.UID != pinned:
		c.add(Refused, about, "it was deleted and created again: a replacement gets the volume of the new claim, and %s, "+
			"the volume of this intent, loses its user", intent.Status.VolumeName)
	case claim.Found && claim.Value.DeletionTimestamp != nil:
		c.add(Hangs, about, "it is being deleted, so the manager refuses a replacement")
	}
}

// data checks that the data of the volume does not go with the intent.
func (c *checker) data(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	pv := c.r.Persistent[facts.Key(intent)]
	switch ending := c.r.Endings[pv.Ref.Name]; {
	case pv.Unread() != "":
		c.add(Unknown, "data", "%s", pv.Unread())
	case ending.Unread != "":
		c.add(Unknown, "data", "%s", ending.Unread)
	case ending.Why != "":
		c.add(Refused, "data", "of %s: %s", pv.Ref, ending.Why).Run = []string{catalog.SetRetain(pv.Ref.Name)}
	}
}

// otherVolume is why an intent cannot replace the source: it has another volume. It is empty if it has the volume of
// the source, or if the source has none.
func otherVolume(source, replacement *volumesv1alpha1.VolumeAttachmentIntent) string {
	has, wants := &replacement.Status, &source.Status
	if wants.VolumeName == "" ||
		has.VolumeName == wants.VolumeName && has.UniqueVolumeName == wants.UniqueVolumeName {
		return ""
	}
	return "the replacement has volume " + has.VolumeName + ", and the intent that it replaces has " + wants.VolumeName
}
