/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AttacherFinalizer begins the name of the finalizer that an external-attacher sets.
const AttacherFinalizer = "external-attacher/"

// UnusedFor is how long a volume may be attached without a user before that is a finding.
const UnusedFor = 10 * time.Minute

// UnusedSince is since when no pod uses a volume, as far as its claim, or the PersistentVolume that lost its claim, has
// it.
func UnusedSince(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (since time.Time, known bool) {
	if claim != nil {
		for _, c := range claim.Status.Conditions {
			if c.Type == corev1.PersistentVolumeClaimUnused && c.Status == corev1.ConditionTrue {
				return c.LastTransitionTime.Time, true
			}
		}
		return time.Time{}, false
	}
	if t := pv.Status.LastPhaseTransitionTime; t != nil && pv.Status.Phase == corev1.VolumeReleased {
		return t.Time, true
	}
	return time.Time{}, false
}

// ofAttachment reads a VolumeAttachment of Hawser or of Kubernetes: its volume and node, and what uses the volume
// there.
func (g *Gatherer) ofAttachment(ctx context.Context, ref Ref) error {
	v := Volume{Attachment: get[storagev1.VolumeAttachment](ctx, g, ref.Kind, "", ref.Name)}
	if !v.Attachment.Found {
		return v.Attachment.Err
	}
	va := v.Attachment.Value
	v.Node = va.Spec.NodeName
	g.volume(ctx, &v, ptr.Deref(va.Spec.Source.PersistentVolumeName, ""))
	if v.Driver == "" {
		v.Driver = va.Spec.Attacher
		v.CSIDriver = get[storagev1.CSIDriver](ctx, g, KindCSIDriver, "", v.Driver)
	}
	if v.Volume.Found && v.Volume.Value.Spec.ClaimRef != nil {
		g.ownerOnNode(ctx, &v)
	}
	if v.Exclusive {
		g.elsewhere(ctx, &v)
	}
	g.users(ctx, &v)
	g.node(ctx, v.Node)
	if va.DeletionTimestamp != nil && Absent(v.CSIDriver.Err) {
		g.drivers(ctx, &v)
	}
	g.facts.Volumes = append(g.facts.Volumes, v)
	return nil
}

// ownerOnNode reads the claim of a volume, and the pods on its node that may use the volume by that claim.
func (g *Gatherer) ownerOnNode(ctx context.Context, v *Volume) {
	claim, other := g.owner(ctx, v.Volume.Value)
	v.Claim = claim
	users := g.podsOf(ctx, claim.Ref, client.MatchingFields{"spec.nodeName": v.Node})
	if other != nil {
		users.Items = slices.DeleteFunc(users.Items, func(pod corev1.Pod) bool { return !MayPrecede(&pod, other) })
	}
	g.facts.Users = users
}

// drivers reads whether any node has the driver of a volume.
func (g *Gatherer) drivers(ctx context.Context, v *Volume) {
	nodes, err := list[storagev1.CSINodeList](ctx, g, "CSINodes")
	v.Nowhere = err == nil && !slices.ContainsFunc(nodes.Items, func(n storagev1.CSINode) bool {
		return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == v.Driver })
	})
}

// podsOf reads the pods that use a claim.
func (g *Gatherer) podsOf(ctx context.Context, claim Ref, options ...client.ListOption) List[corev1.Pod] {
	pods, err := list[corev1.PodList](ctx, g, "pods of "+claim.String(),
		append(options, client.InNamespace(claim.Namespace))...)
	users := List[corev1.Pod]{Err: err}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			name, ok := ClaimOf(pod, &v)
			return ok && name == claim.Name
		}) {
			users.Items = append(users.Items, *pod)
		}
	}
	return users
}
