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
)

// Several PersistentVolumes may have one driver and handle. An attachment to a node has the same name for each of them,
// so one for a PersistentVolume that cannot be attached any more would keep the others away for ever.

// InTheWay reports whether the attachment keeps the PersistentVolume of an intent on the node away and may be deleted
// for that: nothing is lost with it. It was never attached, no attacher has a finalizer on it, and its
// PersistentVolume is gone, or neither an intent nor a pod on the node names that. An attacher that begins to attach
// it changes it, which voids the delete.
func InTheWay(f *Facts, n *Node, a *Attachment) bool {
	i := n.Candidate()
	return i != nil && anotherVolume(i, a) && !a.Terminating && len(a.Finalizers) == 0 && !n.Lists.Attached &&
		!n.State.InUse() &&
		(gone(f, a) || !n.has(a.PersistentVolume) && !slices.Contains(n.PodVolumes, a.PersistentVolume))
}

// anotherVolume reports whether the attachment is not attached and is for another PersistentVolume than the intent.
func anotherVolume(i *Intent, a *Attachment) bool {
	return !a.Attached && a.PersistentVolume != "" && a.PersistentVolume != i.Result.Source.PersistentVolume
}

// gone reports whether no PersistentVolume of the volume has the name that the attachment names.
func gone(f *Facts, a *Attachment) bool {
	_, there := f.Claims[a.PersistentVolume]
	return !there
}

// findInTheWay: the attachment to the node is for another PersistentVolume, which is no fault of the driver's.
func findInTheWay(f *Facts, n *Node, i *Intent) *Finding {
	a := n.Usable()
	if a == nil || !i.mayAttach() || !anotherVolume(i, a) {
		return nil
	}
	what := fmt.Sprintf("VolumeAttachment %s to node %s is for PersistentVolume %s, which", a.Name, n.Name,
		a.PersistentVolume)
	if gone(f, a) {
		what += " does not exist any more"
	} else {
		what += " has the same driver and handle as " + i.Result.Source.PersistentVolume
	}
	switch {
	case InTheWay(f, n, a):
		return not(volumesv1alpha1.ReasonDetaching, "%s; it was never attached, and is deleted and created again for %s",
			what, i.Result.Source.PersistentVolume)
	case !gone(f, a):
		return nil
	}
	return not(volumesv1alpha1.ReasonVolumeInUse,
		"%s; it may be attached, because it has finalizers (%s), so it is detached only when all intents for this volume "+
			"on the node are deleted", what, strings.Join(a.Finalizers, ", "))
}
