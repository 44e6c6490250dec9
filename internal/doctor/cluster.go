/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Kinds beside those of package facts.
const (
	KindEvent  = "Event"
	KindPolicy = "ValidatingAdmissionPolicy"
)

// List is a list of objects, or why it could not be read.
type List[T any] = facts.List[*T]

// Cluster is what was read of a cluster. Its objects have what the checks need, and may lack everything else.
type Cluster struct {
	// Namespace of pods, claims, intents and events; empty for all.
	Namespace string
	// Installed is true if the API server serves Hawser's kinds.
	Installed bool
	// System is Hawser's namespace.
	System string

	Pods        List[corev1.Pod]
	Claims      List[corev1.PersistentVolumeClaim]
	Volumes     List[corev1.PersistentVolume]
	Nodes       List[corev1.Node]
	Events      List[corev1.Event]
	Classes     List[storagev1.StorageClass]
	Drivers     List[storagev1.CSIDriver]
	CSINodes    List[storagev1.CSINode]
	Attachments List[storagev1.VolumeAttachment]
	// Missing are Secrets and ConfigMaps that events name as not found, with the error of their read; nil if they exist.
	Missing map[facts.Ref]error

	// Hawser's kinds are empty where it is not installed.
	Intents  List[volumesv1alpha1.VolumeAttachmentIntent]
	States   List[volumesv1alpha1.NodeVolumeState]
	Managers List[volumesv1alpha1.VolumeManager]
	Leases   List[coordinationv1.Lease]
	// Policies are why an admission policy is not known to be in force, by its name.
	Policies    map[string]string
	PoliciesErr error
}

// kinds in the order in which they are named.
func (c *Cluster) kinds() []string {
	return []string{facts.KindPod, facts.KindClaim, facts.KindVolume, facts.KindAttachment, facts.KindNode,
		facts.KindCSINode, facts.KindCSIDriver, facts.KindClass, KindEvent, facts.KindIntent, facts.KindState,
		facts.KindManager, facts.KindLease, KindPolicy}
}

// errors are why kinds could not be read.
func (c *Cluster) errors() map[string]error {
	return map[string]error{facts.KindPod: c.Pods.Err, facts.KindClaim: c.Claims.Err, facts.KindVolume: c.Volumes.Err,
		facts.KindAttachment: c.Attachments.Err, facts.KindNode: c.Nodes.Err, facts.KindCSINode: c.CSINodes.Err,
		facts.KindCSIDriver: c.Drivers.Err, facts.KindClass: c.Classes.Err, KindEvent: c.Events.Err,
		facts.KindIntent: c.Intents.Err, facts.KindState: c.States.Err, facts.KindManager: c.Managers.Err,
		facts.KindLease: c.Leases.Err, KindPolicy: c.PoliciesErr}
}

// Unreadable is the first error if nothing of the cluster could be read.
func (c *Cluster) Unreadable() error {
	errs := c.errors()
	for _, kind := range []string{facts.KindPod, facts.KindClaim, facts.KindVolume, facts.KindAttachment,
		facts.KindNode} {
		if errs[kind] == nil {
			return nil
		}
	}
	return errs[facts.KindPod]
}
