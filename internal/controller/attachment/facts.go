/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Facts are all that is known of one volume: gathered from the cache, and kept up with what the API
// server answered while a pass goes on.
type Facts struct {
	// Replace: Hawser attaches for pods too, in place of upstream's controller.
	Replace bool
	// PolicyMissing says why the admission policies are not known to be in force; empty while they are.
	PolicyMissing string
	// Volume is the unique name.
	Volume       string
	Driver       string
	VolumeHandle string
	// Described: it has a PersistentVolume.
	Described bool
	// Exclusive: usable on one node only. A volume of which nothing is known counts as exclusive, and so does one that has a lock.
	Exclusive bool
	// Shared: its access modes, as far as they are known, allow several nodes.
	Shared bool
	// SingleUser: usable by one intent only.
	SingleUser bool
	// AttachRequired is false for drivers that know no attach.
	AttachRequired bool
	// CutsAccess: the driver's unpublish is known to cut the node's access.
	CutsAccess    bool
	FSGroupPolicy storagev1.FSGroupPolicy
	Lock          handshake.Lock
	// LockUnreadable, if not nil, says why Lock is not known.
	LockUnreadable *exclusive.UnreadableError
	// Bound are the PersistentVolumeClaims that its PersistentVolumes are bound to.
	Bound []types.NamespacedName
	// Nodes in order of name: every node that has anything to do with the volume.
	Nodes []*Node
}

// Node is one node's part of the facts.
type Node struct {
	Name  string
	State handshake.Node
	// Entry of the volume in the node's state, nil when there is none. Not to be changed.
	Entry *volumesv1alpha1.NodeAttachment
	// Live: State and Entry were read live in this pass.
	Live bool
	// Attachments of the volume to this node, whoever made them.
	Attachments []Attachment
	// Wanted are the intents that count on the volume being here.
	Wanted []*Intent
	// Leaving are the intents that are being deleted.
	Leaving []*Intent
	// Refused are intents that another one keeps out.
	Refused []*Intent
	// DriverMissing: the driver is not registered on the node.
	DriverMissing bool
	// Limit of the driver's volumes on the node, where the volume is to be attached to it.
	Limit Limit
	// Pods bound to the node name the volume's claim.
	Pods bool
	// Holders are the pods on the node that use the volume through the kubelet; gathered where somebody waits for it.
	Holders []types.NamespacedName
	// Missing: there is no such Node.
	Missing bool
	// Managed: the Node's kubelet leaves attaching to a controller.
	Managed bool
	// Lists is what the Node object says of the volume, in the cache or as we last wrote it.
	Lists handshake.KubeletLists
	// BootID that the Node names, in the cache or as we last wrote it.
	BootID string
	// KubeletUses: it is the kubelet, not the agent, that uses the volume.
	KubeletUses bool
	// Evidence stands in for the agent's release where there is any.
	Evidence *volumesv1alpha1.DetachEvidence
	// RenamedTo is the node that uses the volume by this node's attachment, where that keeps evidence from counting; empty for none.
	RenamedTo string
	// EvidenceDue is when there may be evidence; zero when time alone brings none.
	EvidenceDue time.Duration
	// Wait is set when an act on this node was refused in this pass: it is not tried again before something changes.
	Wait *Wait
}

// Wait says what a node waits for. An empty reason is not worth telling.
type Wait struct {
	Reason, Message string
	// Holder is waited for; whom its message may name depends on who reads it.
	Holder *Node
}

// Attachment is one VolumeAttachment.
type Attachment struct {
	Name            string
	ResourceVersion string
	Finalizers      []string
	// Held: an intent counts on it.
	Held bool
	handshake.Attachment
	// Deleted is when it was asked to go; zero while it was not.
	Deleted time.Time
	// AttachError and DetachError are what the driver's attacher last said.
	AttachError, DetachError *storagev1.VolumeError
	// PublishContext is what the driver answered when it attached.
	PublishContext map[string]string
}

// Intent is one intent for the volume.
type Intent struct {
	Object *volumesv1alpha1.VolumeAttachmentIntent
	Result resolve.Result
	// Volume that it resolved to; nil when it did not.
	Volume *corev1.PersistentVolume
	// Claim that it names; nil where there is none.
	Claim *corev1.PersistentVolumeClaim
	// Protected: its own finalizer and its claim's are in place, as far as it needs them.
	Protected bool
}

// mayAttach says whether something may be attached for the intent now.
func (i *Intent) mayAttach() bool { return i.Result.OK && i.Protected }

func (i *Intent) pinned() bool { return i.Object.Status.UniqueVolumeName != "" }

func (i *Intent) name() string { return i.Object.Namespace + "/" + i.Object.Name }

// older puts pinned intents before others and then goes by age and name.
func (i *Intent) older(j *Intent) bool {
	if i.pinned() != j.pinned() {
		return i.pinned()
	}
	if a, b := i.Object.CreationTimestamp, j.Object.CreationTimestamp; !a.Equal(&b) {
		return a.Before(&b)
	}
	return i.name() < j.name()
}

// lockUnreadable: on which node the volume may be used is not known.
func (f *Facts) lockUnreadable() bool { return f.Exclusive && f.LockUnreadable != nil }

// node returns the facts of one node, which it adds when they are new.
func (f *Facts) node(name string) *Node {
	at := 0
	for ; at < len(f.Nodes) && f.Nodes[at].Name <= name; at++ {
		if f.Nodes[at].Name == name {
			return f.Nodes[at]
		}
	}
	n := &Node{Name: name}
	f.Nodes = append(f.Nodes[:at], append([]*Node{n}, f.Nodes[at:]...)...)
	return n
}

// attachmentOf returns the attachment with this UID, or nil.
func (n *Node) attachmentOf(uid types.UID) *Attachment {
	for i := range n.Attachments {
		if n.Attachments[i].UID == uid {
			return &n.Attachments[i]
		}
	}
	return nil
}

// named returns the attachment with this name, or nil.
func (n *Node) named(name string) *Attachment {
	for i := range n.Attachments {
		if n.Attachments[i].Name == name {
			return &n.Attachments[i]
		}
	}
	return nil
}

// held returns an attachment that Hawser counts on and that is not going away; nil when there is none.
func (n *Node) held() *Attachment {
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.Held && !a.Terminating {
			return a
		}
	}
	return nil
}

// usable returns the attachment that an intent may count on: one that stays, preferably held already.
func (n *Node) usable() *Attachment {
	if a := n.held(); a != nil && a.UID != n.detaching() {
		return a
	}
	for i := range n.Attachments {
		if a := &n.Attachments[i]; !a.Terminating && a.UID != n.detaching() {
			return a
		}
	}
	return nil
}

// shared returns the attachment under the name that upstream uses too, unless it is going away; nil when there is none.
func (n *Node) shared(f *Facts) *Attachment {
	name := volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name)
	for i := range n.Attachments {
		if a := &n.Attachments[i]; a.Name == name && !a.Terminating {
			return a
		}
	}
	return nil
}

// forKubelet says whether an intent wants the volume here for the kubelet to mount.
func (n *Node) forKubelet() bool {
	return slices.ContainsFunc(n.Wanted, func(i *Intent) bool {
		return i.mayAttach() && i.Object.Spec.Publisher == volumesv1alpha1.PublisherKubelet
	})
}

// unlisted: Detaching stands, and the Node has not listed the volume since.
func (n *Node) unlisted() bool { return n.Entry != nil && n.Entry.UnlistedGeneration > 0 }

// inherits: what the kubelet mounted of an attachment that upstream made goes over to us with it.
func (n *Node) inherits() bool { return n.KubeletUses && n.State.Use.UID == "" }

// awaitsReport: an earlier attachment was forced away or declared released, and the agent has yet to report that nothing of it is left.
func (n *Node) awaitsReport() bool {
	_, declared := n.State.Declares(n.State.Use.UID)
	return n.State.Entry.State == handshake.Detaching && n.State.Entry.Forced || n.State.Entry.State == handshake.Absent && n.State.Use.InUse && declared
}

// detaching is the UID that Detaching stands for; empty when it does not.
func (n *Node) detaching() types.UID {
	if n.State.Entry.State == handshake.Detaching {
		return n.State.Entry.UID
	}
	return ""
}

// candidate returns the oldest intent for which something may be attached here, or nil.
func (n *Node) candidate() *Intent {
	var oldest *Intent
	for _, i := range n.Wanted {
		if i.mayAttach() && (oldest == nil || i.older(oldest)) {
			oldest = i
		}
	}
	return oldest
}

// observe takes over a state of the node that was read live, or that a write proves; nil where there is none.
func (n *Node) observe(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	n.Live = true
	n.takeOver(nvs, volumeName)
	n.Entry = n.Entry.DeepCopy()
}

// takeOver reads the volume's part of nvs, which may be nil.
func (n *Node) takeOver(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	n.State, n.Entry, n.KubeletUses = handshake.NodeOf(nvs, volumeName), nil, false
	if nvs == nil {
		return
	}
	n.Entry = handshake.AttachmentOf(nvs, volumeName)
	line := handshake.VolumeOf(nvs, volumeName)
	n.KubeletUses = line != nil && line.InUse && line.PublishedBy == volumesv1alpha1.PublisherKubelet
}

// wait keeps the node out of the rest of this pass.
func (n *Node) wait(reason, message string) { n.Wait = &Wait{Reason: reason, Message: message} }

// waitFor keeps the node out of the rest of this pass because the lock cannot leave its holder.
func (n *Node) waitFor(holder *Node, guard handshake.Guard) {
	n.Wait = &Wait{Reason: volumesv1alpha1.ReasonVolumeInUse, Holder: holder}
	if guard == handshake.GuardReported {
		n.wait(volumesv1alpha1.ReasonVolumeInUse, fmt.Sprintf("the volume was last on node %s, whose agent has not reported that it let go of it", holder.Name))
	}
}
