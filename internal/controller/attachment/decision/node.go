/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// MarkedDetaching reports whether the entry is Detaching for the attachment.
func MarkedDetaching(state handshake.Node, uid types.UID) bool {
	return state.Entry.State == handshake.Detaching && state.Entry.UID == uid
}

// Node is one node's part of the facts.
type Node struct {
	Name  string
	State handshake.Node
	// Entry of the volume in the node's state, nil when there is none. Not to be changed.
	Entry *volumesv1alpha1.NodeAttachment
	// Live: State and Entry were read live in this pass.
	Live bool
	// Attachments of the volume to this node, including those that others created.
	Attachments []Attachment
	// Wanted are the intents that count on the volume being here.
	Wanted []*Intent
	// Leaving are the intents that are being deleted.
	Leaving []*Intent
	// Refused are intents that others keep out.
	Refused []*Intent
	// NamespaceUses counts the pinned intents on the node by namespace, those of all volumes.
	NamespaceUses map[string]int
	// DriverMissing: the driver is not registered on the node.
	DriverMissing bool
	// Limit of the driver's volumes on the node, where the volume is to be attached to it.
	Limit Limit
	// Pods bound to the node name the volume's claim.
	Pods bool
	// PodVolumes are the PersistentVolumes whose claims they name.
	PodVolumes []string
	// Holders are the pods on the node that use the volume through the kubelet; gathered only if another node waits for
	// it.
	Holders []types.NamespacedName
	// Missing: there is no such Node.
	Missing bool
	// Returned: the Node is another one than the agent reported from. What its kubelet lists in use is not what that of
	// the earlier one had mounted.
	Returned bool
	// Covered: the agent's report of the volume is of all that the kubelet did, although the Node is gone.
	Covered bool
	// Tainted: the Node carries the out-of-service taint, whether that counts as evidence or not.
	Tainted bool
	// Fenced: it is the manager that has set the taint, and that removes it.
	Fenced bool
	// Managed: the Node's kubelet leaves attaching to a controller.
	Managed bool
	// Lists is what the Node object says of the volume, in the cache or as we last wrote it.
	Lists handshake.KubeletLists
	// NodeUID is the UID of the Node, in the cache; empty for none.
	NodeUID types.UID
	// BootID that the Node names, in the cache or as we last wrote it.
	BootID string
	// KubeletUses: it is the kubelet, not the agent, that uses the volume.
	KubeletUses bool
	// Evidence replaces the agent's release; nil if there is none.
	Evidence *volumesv1alpha1.DetachEvidence
	// RenamedTo is the node that uses the volume by this node's attachment, where that keeps evidence from counting;
	// empty for none.
	RenamedTo string
	// EvidenceDue is when there may be evidence; zero when time alone brings none.
	EvidenceDue time.Duration
	// Unheard: the node's agent is silent, and no agent reports a restore. UnheardDue is after how long that may be so.
	Unheard    bool
	UnheardDue time.Duration
	// Wait is set when an act on this node was refused in this pass: it is not tried again before something changes.
	Wait *Wait
}

// AttachmentOf returns the attachment with this UID, or nil.
func (n *Node) AttachmentOf(uid types.UID) *Attachment {
	for i := range n.Attachments {
		if n.Attachments[i].UID == uid {
			return &n.Attachments[i]
		}
	}
	return nil
}

// AttachmentNamed returns the attachment with this name, or nil.
func (n *Node) AttachmentNamed(name string) *Attachment {
	for i := range n.Attachments {
		if n.Attachments[i].Name == name {
			return &n.Attachments[i]
		}
	}
	return nil
}

// held returns an attachment that Hawser counts on for this volume and that is not going away; nil when there is none.
func (n *Node) held(f *Facts) *Attachment {
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.Held && !a.Terminating && !f.ofAnother(a) {
			return a
		}
	}
	return nil
}

// Usable returns the attachment that an intent may count on: one that stays, preferably held already.
func (n *Node) Usable(f *Facts) *Attachment {
	if a := n.held(f); a != nil && a.UID != n.Detaching() && !f.attachesAnother(a) {
		return a
	}
	for i := range n.Attachments {
		if a := &n.Attachments[i]; !a.Terminating && a.UID != n.Detaching() && !f.ofAnother(a) && !f.attachesAnother(a) {
			return a
		}
	}
	return nil
}

// UnderSharedName returns the attachment under the name that upstream uses too, unless it is going away; nil when
// there is none.
func (n *Node) UnderSharedName(f *Facts) *Attachment {
	name := volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name)
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.Name == name && !a.Terminating && !f.ofAnother(a) {
			return a
		}
	}
	return nil
}

// forKubelet reports whether an intent wants the volume here for the kubelet to mount.
func (n *Node) forKubelet() bool {
	return slices.ContainsFunc(n.Wanted, func(i *Intent) bool {
		return i.mayAttach() && i.Object.Spec.Publisher == volumesv1alpha1.PublisherKubelet
	})
}

// Unlisted reports whether the entry is Detaching and the Node has not listed the volume since.
func (n *Node) Unlisted() bool { return n.Entry != nil && n.Entry.Protocol.UnlistedGeneration > 0 }

// inherits: what the kubelet mounted of an attachment that upstream made goes over to us with it.
func (n *Node) inherits() bool { return n.KubeletUses && n.State.Use.UID == "" }

// awaitsReport: an earlier attachment was forced away or declared released, and the agent has yet to report that
// nothing of it is left.
func (n *Node) awaitsReport() bool {
	_, declared := n.State.Declares(n.State.Use.UID)
	return n.State.Entry.State == handshake.Detaching && n.State.Entry.Forced ||
		n.State.Entry.State == handshake.Absent && n.State.Use.InUse && declared
}

// takesNone: nothing new is attached to the node before its agent has reported, or its taint was removed.
func (n *Node) takesNone() bool {
	return n.awaitsReport() || n.Tainted && n.State.Entry.State != handshake.Attached
}

// Detaching is the UID of the attachment whose entry is Detaching; empty if there is none.
func (n *Node) Detaching() types.UID {
	if n.State.Entry.State == handshake.Detaching {
		return n.State.Entry.UID
	}
	return ""
}

// Candidate returns the oldest intent that the volume may be attached for here, or nil.
func (n *Node) Candidate() *Intent {
	var oldest *Intent
	for _, i := range n.Wanted {
		if i.mayAttach() && (oldest == nil || i.older(oldest)) {
			oldest = i
		}
	}
	return oldest
}

// Observe takes over a state of the node that was read live, or that a write proves; nil where there is none.
func (n *Node) Observe(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	n.Live = true
	n.TakeOver(nvs, volumeName)
	n.Entry = n.Entry.DeepCopy()
}

// TakeOver reads the volume's part of nvs, which may be nil.
func (n *Node) TakeOver(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	n.State, n.Entry, n.KubeletUses = handshake.NodeOf(nvs, volumeName), nil, false
	if nvs == nil {
		return
	}
	n.Entry = handshake.AttachmentOf(nvs, volumeName)
	for i := range nvs.Status.Volumes { // the lines of two machines may be about one volume
		if v := &nvs.Status.Volumes[i]; v.VolumeName == volumeName && v.InUse {
			if n.KubeletUses = v.PublishedBy == volumesv1alpha1.PublisherKubelet; !n.KubeletUses {
				return
			}
		}
	}
}

// SetWait keeps the node out of the rest of this pass.
func (n *Node) SetWait(reason, message string) { n.Wait = &Wait{Reason: reason, Message: message} }

// WaitFor keeps the node out of the rest of this pass because the lock cannot leave its holder.
func (n *Node) WaitFor(holder *Node, guard handshake.Guard) {
	n.Wait = &Wait{Reason: volumesv1alpha1.ReasonVolumeInUse, Holder: holder}
	if guard == handshake.GuardReported {
		n.SetWait(volumesv1alpha1.ReasonVolumeInUse, fmt.Sprintf(
			"the volume was last on node %s, whose agent has not reported that it let go of it", holder.Name,
		))
	}
	if guard == handshake.GuardCutHolds {
		n.SetWait(volumesv1alpha1.ReasonVolumeInUse, fmt.Sprintf(
			"the volume was forced away from node %[1]s, whose access was cut by a fence that was lifted since; what is "+
				"mounted there may write to it until the agent of node %[1]s reports that nothing is left, or an administrator "+
				"declares "+
				"that attachment released", holder.Name,
		))
	}
}

// AddAttachment adds what is known of an attachment to the node.
func (n *Node) AddAttachment(va *storagev1.VolumeAttachment) {
	a := Attachment{
		Name: va.Name, ResourceVersion: va.ResourceVersion, Finalizers: va.Finalizers,
		Attachment:  handshake.AttachmentFrom(va),
		AttachError: va.Status.AttachError, DetachError: va.Status.DetachError,
		PublishContext: va.Status.AttachmentMetadata,
	}
	a.Held, a.Created = IsHeld(va), va.CreationTimestamp.Time
	a.Volume = volume.AttachedUniqueName(va)
	a.PersistentVolume = ptr.Deref(va.Spec.Source.PersistentVolumeName, "")
	if va.DeletionTimestamp != nil {
		a.Deleted = va.DeletionTimestamp.Time
	}
	if i := slices.IndexFunc(n.Attachments, func(b Attachment) bool { return b.Name == a.Name }); i >= 0 {
		n.Attachments[i] = a
		return
	}
	n.Attachments = append(n.Attachments, a)
}

// IsHeld reports whether Hawser counts on the attachment.
func IsHeld(va *storagev1.VolumeAttachment) bool {
	_, held := va.Annotations[volumesv1alpha1.HoldAnnotation]
	return held
}

// Drop takes intents out of those that are leaving.
func (n *Node) Drop(intents []*Intent) {
	n.Leaving = slices.DeleteFunc(slices.Clone(n.Leaving), func(i *Intent) bool { return slices.Contains(intents, i) })
}
