/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package facts reads what explains the state of a volume: pod, claim, PersistentVolume, intent, lock, attachment and
// node. It reads through a small interface, a bounded number of times, and judges nothing. What cannot be read keeps
// its error, and the rest is read all the same.
package facts

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the kind, and the name with its namespace.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Kinds of the objects that are read.
const (
	KindPod        = "Pod"
	KindClaim      = "PersistentVolumeClaim"
	KindVolume     = "PersistentVolume"
	KindClass      = "StorageClass"
	KindIntent     = "VolumeAttachmentIntent"
	KindSet        = "VolumeAttachmentIntentSet"
	KindState      = "NodeVolumeState"
	KindManager    = "VolumeManager"
	KindNode       = "Node"
	KindCSINode    = "CSINode"
	KindCSIDriver  = "CSIDriver"
	KindAttachment = "VolumeAttachment"
	KindLease      = "Lease"
	KindLocks      = "ConfigMap"
)

// Object is one object, or the error of its read. It has neither where it was not asked for.
type Object[P any] struct {
	Ref   Ref
	Value P
	Err   error
	// Found is true if Value was read.
	Found bool
}

// Asked reports whether the object was asked for.
func (o Object[P]) Asked() bool { return o.Found || o.Err != nil }

// Unread is why it could not be read; empty if it was, or if there is no such object.
func (o Object[P]) Unread() string {
	if o.Err == nil || Absent(o.Err) {
		return ""
	}
	return o.Ref.String() + " cannot be read: " + o.Err.Error()
}

// List is a list of objects, or the error of its read.
type List[T any] struct {
	Items []T
	Err   error
	// Cut is true if there are more.
	Cut bool
}

// Event is one event about an object, the last time that it came.
type Event struct {
	Reason, Message string
	Warning         bool
	Count           int32
	First, Last     time.Time
}

// Volume is one volume, as its user wants it on a node.
type Volume struct {
	// PodVolume is its name in the pod, if a pod wants it.
	PodVolume string
	// Ephemeral is true if the claim is made for the pod.
	Ephemeral bool
	// Node is where it is wanted; empty for none.
	Node string
	// Intent that wants it: the subject, or the pod's.
	Intent Object[*volumesv1alpha1.VolumeAttachmentIntent]
	Claim  Object[*corev1.PersistentVolumeClaim]
	// ClaimEvents of a claim that is not bound, or that is being expanded.
	ClaimEvents List[Event]
	Class       Object[*storagev1.StorageClass]
	Volume      Object[*corev1.PersistentVolume]
	// Driver is the name of the CSI driver; empty for another kind of volume.
	Driver string
	// UniqueName of the volume in node states.
	UniqueName string
	CSIDriver  Object[*storagev1.CSIDriver]
	// Kept is the PersistentVolume that Intent keeps to, if it is not Volume.
	Kept Object[*corev1.PersistentVolume]
	// Exclusive is true if one node only may use it.
	Exclusive bool
	// Attachment to Node.
	Attachment Object[*storagev1.VolumeAttachment]
	// Other is the PersistentVolume that the attachment to Node names, if it is not Volume: one of the same handle.
	Other Object[*corev1.PersistentVolume]
	// Nowhere is true if no node has the driver; read for an attachment that is being deleted.
	Nowhere bool
	// Elsewhere are attachments to other nodes; read if the volume is exclusive, and not attached to Node or its intent
	// waits.
	Elsewhere List[storagev1.VolumeAttachment]
	// Pods that use the claim; read where there are attachments to other nodes.
	Pods List[corev1.Pod]
	// Lock of an exclusive volume, for an intent.
	Lock Object[exclusive.Lock]
	// Intents of the volume, on all nodes.
	Intents List[volumesv1alpha1.VolumeAttachmentIntent]
}

// Node is what shows the state of one node.
type Node struct {
	Name    string
	Node    Object[*corev1.Node]
	CSINode Object[*storagev1.CSINode]
	State   Object[*volumesv1alpha1.NodeVolumeState]
	Lease   Object[*coordinationv1.Lease]
	// Pods on a Node that is not Ready: what its out-of-service taint would end.
	Pods List[corev1.Pod]
}

// Facts about one subject.
type Facts struct {
	// Now is when they were read.
	Now     time.Time
	Subject Ref
	// FromFile is true if the subject is not in the cluster, or another version of it is.
	FromFile bool
	// Applied is the version in the cluster of a subject from a file.
	Applied client.Object
	// Installed is true if the API server serves Hawser's kinds.
	Installed bool
	// System is Hawser's namespace.
	System       string
	Manager      Object[*volumesv1alpha1.VolumeManager]
	ManagerLease Object[*coordinationv1.Lease]

	Pod       Object[*corev1.Pod]
	PodEvents List[Event]
	// Missing are the objects that its events name as not found, with the error of their read; nil if they exist.
	Missing map[Ref]error
	// Filling is read if no node is found for the pod for its volumes, and it may use one only.
	Filling Filling
	// PodIntents were written for the pod by the manager.
	PodIntents List[volumesv1alpha1.VolumeAttachmentIntent]
	Volumes    []Volume
	Nodes      []Node

	// NodeIntents and NodePods are on the node, if a node is the subject.
	NodeIntents List[volumesv1alpha1.VolumeAttachmentIntent]
	NodePods    List[corev1.Pod]
	// Keepers are the volumes of the intents that keep the Node that is the subject from being deleted.
	Keepers []Volume
	// Persistent are the PersistentVolumes on the node whose claims no intent there names, by their names.
	Persistent map[string]*corev1.PersistentVolume
	// Users are pods that use the claim that is the subject, or whose volume the attachment is for, on its node.
	Users List[corev1.Pod]

	// Set is the subject, and SetIntents those that were made for it.
	Set        Object[*volumesv1alpha1.VolumeAttachmentIntentSet]
	SetIntents List[volumesv1alpha1.VolumeAttachmentIntent]

	// OperatorLease, AgentLeases and SystemPods are in Hawser's namespace, if the VolumeManager is the subject.
	OperatorLease Object[*coordinationv1.Lease]
	AgentLeases   List[coordinationv1.Lease]
	SystemPods    List[corev1.Pod]
}

// NodeOf returns what was read of a node.
func (f *Facts) NodeOf(name string) (Node, bool) {
	for _, n := range f.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}
