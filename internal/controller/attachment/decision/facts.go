/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Facts are all that is known of one volume: gathered from the cache, and kept up with what the API
// server answered while a pass goes on.
type Facts struct {
	// Replace: Hawser attaches for pods too, in place of upstream's controller.
	Replace bool
	// PolicyMissing is why the admission policies are not known to be in force; empty while they are.
	PolicyMissing string
	// Volume is the unique name.
	Volume       string
	Driver       string
	VolumeHandle string
	// Described: it has a PersistentVolume.
	Described bool
	// Exclusive: usable on one node only. A volume without a source counts as exclusive, and so does one that has a lock.
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
	SELinuxMount  bool
	Lock          handshake.Lock
	// LockUnreadable, if not nil, is why Lock is not known.
	LockUnreadable *exclusive.UnreadableError
	// Bound are the PersistentVolumeClaims that its PersistentVolumes are bound to.
	Bound []types.NamespacedName
	// Claims are the claims that its PersistentVolumes are bound to, by the PersistentVolume's name; nil for none.
	Claims map[string]*types.NamespacedName
	// Others are PersistentVolumes that attachments name and that are of another volume: its unique name by theirs.
	Others map[string]string
	// Nodes in order of name: every node that has anything to do with the volume.
	Nodes []*Node
}

// Wait is what a node waits for. An empty reason is not reported.
type Wait struct {
	Reason, Message string
	// Holder is waited for. Its message names users of the reader's namespace only.
	Holder *Node
}

// Attachment is one VolumeAttachment.
type Attachment struct {
	Name            string
	ResourceVersion string
	Finalizers      []string
	// PersistentVolume that it names; empty for a volume that a pod has in itself.
	PersistentVolume string
	// Volume is the unique name that it says itself; empty where it says none.
	Volume string
	// Held: an intent counts on it.
	Held bool
	handshake.Attachment
	// Created is when it was created, Deleted when it was asked to go; zero while it was not.
	Created, Deleted time.Time
	// Silent: the attacher should have answered by now.
	Silent bool
	// AttachError and DetachError are what the driver's attacher last said.
	AttachError, DetachError *storagev1.VolumeError
	// PublishContext is what the driver answered when it attached.
	PublishContext map[string]string
}

// LockUnknown reports whether the node that may use the volume is not known.
func (f *Facts) LockUnknown() bool { return f.Exclusive && f.LockUnreadable != nil }

// Node returns the facts of one node, which it adds when they are new.
func (f *Facts) Node(name string) *Node {
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

// Describe sets what kind of volume it is: from its sources or, if there are none, from its name.
func Describe(f *Facts, sources []*volume.Source) {
	shared, attach := len(sources) > 0, len(sources) == 0
	f.Described = shared
	f.Driver, f.VolumeHandle = volume.Split(f.Volume)
	f.Claims = map[string]*types.NamespacedName{}
	for _, s := range sources {
		f.Claims[s.PersistentVolume] = s.Claim
		f.Driver, f.VolumeHandle = s.Driver, s.Handle
		shared, attach = shared && !s.Exclusive(), attach || s.Attach
		if s.Claim != nil {
			f.Bound = append(f.Bound, *s.Claim)
		}
		f.SingleUser = f.SingleUser || slices.Contains(s.AccessModes, corev1.ReadWriteOncePod)
	}
	f.AttachRequired = attach
	f.Shared, f.Exclusive = shared, !shared || f.Lock.Exists || f.LockUnreadable != nil
}

// AttachmentName is the name of the volume's attachment to the node.
func AttachmentName(f *Facts, node string) string {
	return volume.AttachmentName(f.Driver, f.VolumeHandle, node)
}
