/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// findUndone: the attachment stands, but it is not attached any more. Its attacher has to attach it again; what is mounted stays.
func findUndone(n *Node) *Finding {
	a := n.attachmentOf(n.State.Entry.UID)
	switch {
	case a == nil || a.Terminating || a.Attached:
		return nil
	case a.AttachError != nil:
		found := not(volumesv1alpha1.ReasonAttachmentLost, "the volume was detached from node %s behind Hawser's back, and attaching it again by VolumeAttachment %s fails: %s",
			n.Name, a.Name, a.AttachError.Message)
		found.Error = a.AttachError
		return found
	}
	return not(volumesv1alpha1.ReasonAttachmentLost, "the volume was detached from node %s behind Hawser's back: VolumeAttachment %s is not attached any more; the driver is to attach it again",
		n.Name, a.Name)
}
