/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Several PersistentVolumes may have one driver and handle. An attachment to a node has the same name for each of them,
// so one for a PersistentVolume that cannot be attached any more would keep the others away for ever.

// InTheWay reports whether the attachment keeps the PersistentVolume of an intent or a pod on the node away and may be
// deleted for that: nothing is lost with it. It was never attached, no attacher has a finalizer on it, and its
// PersistentVolume is gone, or neither an intent nor a pod on the node names that. An attacher that begins to attach
// it changes it, which voids the delete. What attaches another volume is of no use in any case.
func InTheWay(f *Facts, n *Node, a *Attachment) bool {
	if n.Candidate() == nil && !n.Pods || a.Terminating || n.Lists.Attached || f.Replace && n.Lists.Missing ||
		Uncovered(f, n) || n.State.InUse() {
		return false
	}
	return f.attachesAnother(a) || !a.Attached && a.PersistentVolume != "" && len(a.Finalizers) == 0 &&
		(Gone(f, a) || !n.has(a.PersistentVolume) && !slices.Contains(n.PodVolumes, a.PersistentVolume))
}

// A PersistentVolume may be deleted and created again under its name with another handle. Its attachment, if that was
// not attached before, then attaches the volume of the new handle, although it was created for the earlier one.

// attachesAnother reports whether the attachment, which is of this volume, attaches another one.
func (f *Facts) attachesAnother(a *Attachment) bool { return f.Others[a.PersistentVolume] != "" }

// ofAnother reports whether the attachment was created for another volume and attaches this one. It is that volume's to
// detach, so nothing may rest on it here, and it has to be gone before this volume is attached to its node.
func (f *Facts) ofAnother(a *Attachment) bool { return a.Volume != "" && a.Volume != f.Volume }

// findAnother: such an attachment is at the node.
func findAnother(f *Facts, n *Node, _ *Intent) *Finding {
	if n.State.Entry.State != handshake.Absent {
		return nil
	}
	for i := range n.Attachments {
		a := &n.Attachments[i]
		if other := f.Others[a.PersistentVolume]; other != "" && !f.ofAnother(a) {
			return not(volumesv1alpha1.ReasonDetaching, "VolumeAttachment %s to node %s is for PersistentVolume %s, "+
				"which was created again as another volume, %s; it is deleted once node %s does not use that", a.Name, n.Name,
				a.PersistentVolume, other, n.Name)
		}
		if f.ofAnother(a) {
			return not(volumesv1alpha1.ReasonDetaching, "VolumeAttachment %s to node %s was created for another volume, %s, "+
				"and PersistentVolume %s has another handle by now; the volume is attached once that one is detached: "+
				"delete the intents for it", a.Name, n.Name, a.Volume, a.PersistentVolume)
		}
	}
	return nil
}

// anotherVolume reports whether the attachment is not attached and is for another PersistentVolume than the intent.
func anotherVolume(i *Intent, a *Attachment) bool {
	return !a.Attached && a.PersistentVolume != "" && a.PersistentVolume != i.Result.Source.PersistentVolume
}

// Gone reports whether no PersistentVolume of the volume has the name that the attachment names.
func Gone(f *Facts, a *Attachment) bool {
	_, there := f.Claims[a.PersistentVolume]
	return !there
}

// findInTheWay: the attachment to the node is for another PersistentVolume, which is no fault of the driver's.
func findInTheWay(f *Facts, n *Node, i *Intent) *Finding {
	a := n.Usable(f)
	if a == nil || !i.mayAttach() || !anotherVolume(i, a) {
		return nil
	}
	what := fmt.Sprintf("VolumeAttachment %s to node %s is for PersistentVolume %s, which", a.Name, n.Name,
		a.PersistentVolume)
	if Gone(f, a) {
		what += " does not exist any more"
	} else {
		what += " has the same driver and handle as " + i.Result.Source.PersistentVolume
	}
	switch {
	case InTheWay(f, n, a):
		return not(volumesv1alpha1.ReasonDetaching, "%s; it was never attached, and is deleted and created again for %s",
			what, i.Result.Source.PersistentVolume)
	case !Gone(f, a):
		return nil
	}
	return not(volumesv1alpha1.ReasonVolumeInUse,
		"%s; it may be attached, because it has finalizers (%s), so it is detached only when all intents for this volume "+
			"on the node are deleted", what, strings.Join(a.Finalizers, ", "))
}
