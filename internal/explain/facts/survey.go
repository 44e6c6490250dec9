/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// States reads the node states of all nodes in pages, or that of one node.
func (g *Gatherer) States(ctx context.Context, node string) ([]volumesv1alpha1.NodeVolumeState, error) {
	if node != "" {
		var state volumesv1alpha1.NodeVolumeState
		if err := g.Reader.Get(ctx, client.ObjectKey{Name: node}, &state); err != nil {
			return nil, &ErrSubject{Ref{KindState, "", node}, err}
		}
		return []volumesv1alpha1.NodeVolumeState{state}, nil
	}
	found, err := list[volumesv1alpha1.NodeVolumeStateList](ctx, g, "node states", client.Limit(statePage))
	if err != nil {
		return nil, &ErrSubject{Ref{KindState, "", "(all)"}, err}
	}
	return found.Items, nil
}

// Others reads the nodes of the cluster, and the PersistentVolumes of a node state.
func (g *Gatherer) Others(ctx context.Context, state *volumesv1alpha1.NodeVolumeState) (
	[]corev1.Node, map[string]*corev1.PersistentVolume, error) {
	nodes, err := list[corev1.NodeList](ctx, g, "nodes")
	if err != nil {
		return nil, nil, err
	}
	volumes := map[string]*corev1.PersistentVolume{}
	for i := range state.Spec.Attachments {
		name := state.Spec.Attachments[i].PersistentVolumeName
		if pv := get[corev1.PersistentVolume](ctx, g, KindVolume, "", name); pv.Found {
			volumes[name] = pv.Value
		}
	}
	return nodes.Items, volumes, ctx.Err()
}

// EventsOf reads the events of everything that a volume has to do with: PersistentVolume, claim, intents, node states.
func (g *Gatherer) EventsOf(ctx context.Context, f *Facts) map[Ref][]Event {
	v := &f.Volumes[0]
	events := map[Ref][]Event{}
	read := func(ref Ref, object client.Object) {
		if found := g.events(ctx, ref.Namespace, object.GetUID()); len(found.Items) > 0 {
			events[ref] = found.Items
		}
	}
	if v.Volume.Found {
		read(v.Volume.Ref, v.Volume.Value)
	}
	if v.Claim.Found {
		read(v.Claim.Ref, v.Claim.Value)
	}
	for i := range v.Intents.Items {
		if i == mostHolders {
			break
		}
		intent := &v.Intents.Items[i]
		read(Ref{KindIntent, intent.Namespace, intent.Name}, intent)
	}
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.State.Found {
			read(n.State.Ref, n.State.Value)
		}
	}
	return events
}
