/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Others reads the nodes of the cluster.
func (g *Gatherer) Others(ctx context.Context) ([]corev1.Node, error) {
	nodes, err := list[corev1.NodeList](ctx, g, "nodes")
	return nodes.Items, err
}

// EventsOf reads the events of everything that a subject has to do with: itself, PersistentVolumes, claims, some of the
// intents, node states.
func (g *Gatherer) EventsOf(ctx context.Context, f *Facts) map[Ref][]Event {
	events := map[Ref][]Event{}
	read := func(ref Ref, object client.Object) {
		if events[ref] != nil {
			return
		}
		if found := g.events(ctx, ref.Namespace, object.GetUID()); len(found.Items) > 0 {
			events[ref] = found.Items
		}
	}
	if object, _ := f.Object(); object != nil {
		read(f.Subject, object)
	}
	for i := range f.Volumes {
		v := &f.Volumes[i]
		if v.Volume.Found {
			read(v.Volume.Ref, v.Volume.Value)
		}
		if v.Claim.Found {
			read(v.Claim.Ref, v.Claim.Value)
		}
	}
	intents := f.Intents()
	for _, intent := range intents[:min(len(intents), mostHolders)] {
		read(Ref{KindIntent, intent.Namespace, intent.Name}, intent)
	}
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.State.Found {
			read(n.State.Ref, n.State.Value)
		}
	}
	return events
}

// Object is the subject with its conditions, if it is one that Volumes and Nodes do not have.
func (f *Facts) Object() (client.Object, []metav1.Condition) {
	switch {
	case f.Subject.Kind == KindSet && f.Set.Found:
		return f.Set.Value, f.Set.Value.Status.Conditions
	case f.Subject.Kind == KindManager && f.Manager.Found:
		return f.Manager.Value, f.Manager.Value.Status.Conditions
	case f.Subject.Kind == KindPod && f.Pod.Found:
		return f.Pod.Value, nil
	case f.Subject.Kind == KindNode:
		if n, _ := f.NodeOf(f.Subject.Name); n.Node.Found {
			return n.Node.Value, nil
		}
	}
	return nil, nil
}

// Intents are all that were read, each once.
func (f *Facts) Intents() []*volumesv1alpha1.VolumeAttachmentIntent {
	lists := [][]volumesv1alpha1.VolumeAttachmentIntent{f.SetIntents.Items, f.NodeIntents.Items, f.PodIntents.Items}
	for i := range f.Volumes {
		lists = append(lists, f.Volumes[i].Intents.Items)
		if f.Volumes[i].Intent.Found {
			lists = append(lists, []volumesv1alpha1.VolumeAttachmentIntent{*f.Volumes[i].Intent.Value})
		}
	}
	var all []*volumesv1alpha1.VolumeAttachmentIntent
	known := map[string]bool{}
	for _, list := range lists {
		for i := range list {
			if key := Key(&list[i]); !known[key] {
				known[key] = true
				all = append(all, &list[i])
			}
		}
	}
	return all
}
