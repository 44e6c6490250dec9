/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// fewIntents is for how many volumes of a node the intents are read volume by volume. Of more than these the list of
// all is read.
const fewIntents = 8

// Fencing is what concerns a node whose machine is to be powered off.
type Fencing struct {
	*Facts
	// Pods on the node that have not ended.
	Pods List[corev1.Pod]
	// Pending are the pods of the cluster that wait, on this node or another one, or for a node.
	Pending List[corev1.Pod]
	// Elsewhere are the intents of the node's volumes on other nodes.
	Elsewhere List[volumesv1alpha1.VolumeAttachmentIntent]
	// Volumes are the PersistentVolumes of the node by name.
	Volumes map[string]*corev1.PersistentVolume
	// VolumesUnread is why some of them could not be read.
	VolumesUnread error
	// Endings of their data by the same names.
	Endings map[string]Ending
	// Attachments to the node that its node state does not have: those that Kubernetes made.
	Attachments List[Attachment]
	// Drivers of the node's volumes by name, as far as they can be read.
	Drivers map[string]*storagev1.CSIDriver
}

// Fence reads what concerns a node whose machine is to be powered off.
func (g *Gatherer) Fence(ctx context.Context, node string) (*Fencing, error) {
	f, err := g.Gather(ctx, Ref{Kind: KindNode, Name: node})
	if err != nil {
		return nil, err
	}
	n, _ := f.NodeOf(node)
	if !n.State.Found {
		return nil, n.Missing()
	}
	r := &Fencing{Facts: f, Drivers: map[string]*storagev1.CSIDriver{}}
	names := map[string]bool{}
	add := func(driver, volume string) {
		if found := get[storagev1.CSIDriver](ctx, g, KindCSIDriver, "", driver); found.Found {
			r.Drivers[driver] = found.Value
		}
		if volume != "" {
			names[volume] = true
		}
	}
	entries := n.State.Value.Spec.Attachments
	for i := range entries {
		add(entries[i].Driver, entries[i].PersistentVolumeName)
	}
	all, err := g.attachments(ctx)
	r.Attachments.Err = err
	for _, a := range all {
		if a.Node == node && !slices.ContainsFunc(entries, func(e volumesv1alpha1.NodeAttachment) bool {
			return e.AttachmentName == a.Name || a.Volume != "" && e.PersistentVolumeName == a.Volume
		}) {
			r.Attachments.Items = append(r.Attachments.Items, a)
			add(a.Driver, a.Volume)
		}
	}
	r.Volumes, r.VolumesUnread = g.Persistent(ctx, slices.Collect(maps.Keys(names)))
	r.Endings = g.Endings(ctx, r.Volumes)
	pods, err := list[corev1.PodList](ctx, g, "pods on node "+node, client.MatchingFields{"spec.nodeName": node})
	r.Pods = List[corev1.Pod]{Err: err}
	for i := range pods.Items {
		if !Ended(&pods.Items[i]) {
			r.Pods.Items = append(r.Pods.Items, pods.Items[i])
		}
	}
	pending, err := list[corev1.PodList](ctx, g, "pods that wait",
		client.MatchingFields{"status.phase": string(corev1.PodPending)})
	r.Pending = List[corev1.Pod]{Items: pending.Items, Err: err}
	r.Elsewhere = g.elsewhereOf(ctx, node, names)
	return r, ctx.Err()
}

// elsewhereOf reads the intents of some PersistentVolumes on other nodes.
func (g *Gatherer) elsewhereOf(
	ctx context.Context, node string, names map[string]bool,
) List[volumesv1alpha1.VolumeAttachmentIntent] {
	var found List[volumesv1alpha1.VolumeAttachmentIntent]
	add := func(read List[volumesv1alpha1.VolumeAttachmentIntent]) {
		if read.Err != nil {
			found.Err = read.Err
		}
		for i := range read.Items {
			if names[read.Items[i].Status.VolumeName] && read.Items[i].Spec.NodeName != node {
				found.Items = append(found.Items, read.Items[i])
			}
		}
	}
	if len(names) > fewIntents {
		add(g.intents(ctx, "intents"))
		return found
	}
	for name := range names {
		add(g.intents(ctx, "intents of "+Ref{KindVolume, "", name}.String(),
			client.MatchingFields{"status.volumeName": name}))
	}
	return found
}
