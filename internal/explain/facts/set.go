/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// mostCauses is for how many reasons of a set an intent is followed to its storage.
const mostCauses = 3

// Part is the intents of a set that wait for one reason, the oldest first.
type Part struct {
	Reason  string
	Intents []volumesv1alpha1.VolumeAttachmentIntent
}

// ofSet reads a set and its intents. Of those that wait for one reason it follows the oldest to its storage.
func (g *Gatherer) ofSet(ctx context.Context, ref Ref) error {
	g.facts.Set = get[volumesv1alpha1.VolumeAttachmentIntentSet](ctx, g, ref.Kind, ref.Namespace, ref.Name)
	if !g.facts.Set.Found {
		return g.facts.Set.Err
	}
	set := g.facts.Set.Value
	found := g.intents(ctx, "intents of "+ref.String(), client.InNamespace(ref.Namespace),
		client.MatchingLabels{volumesv1alpha1.IntentSetLabel: set.Name})
	found.Items = slices.DeleteFunc(found.Items, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return !metav1.IsControlledBy(&i, set) && i.Labels[volumesv1alpha1.IntentSetUIDLabel] != string(set.UID)
	})
	g.facts.SetIntents = found
	for i, part := range Waiting(found.Items) {
		first := &part.Intents[0]
		intent := Object[*volumesv1alpha1.VolumeAttachmentIntent]{Value: first, Found: true,
			Ref: Ref{KindIntent, first.Namespace, first.Name}}
		if i >= mostCauses {
			g.facts.Volumes = append(g.facts.Volumes, Volume{Intent: intent, Node: first.Spec.NodeName})
			continue
		}
		g.wanted(ctx, intent)
	}
	return nil
}

// Waiting are the intents that are not Ready, by their reasons. The most frequent is first.
func Waiting(intents []volumesv1alpha1.VolumeAttachmentIntent) []Part {
	byReason := map[string][]volumesv1alpha1.VolumeAttachmentIntent{}
	for _, intent := range intents {
		ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
		switch {
		case ready == nil:
			byReason[""] = append(byReason[""], intent)
		case ready.Status != metav1.ConditionTrue || intent.DeletionTimestamp != nil ||
			intent.Status.ObservedGeneration < intent.Generation:
			byReason[ready.Reason] = append(byReason[ready.Reason], intent)
		}
	}
	var parts []Part
	for reason, list := range byReason {
		slices.SortFunc(list, func(a, b volumesv1alpha1.VolumeAttachmentIntent) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		parts = append(parts, Part{reason, list})
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(len(b.Intents), len(a.Intents)), cmp.Compare(a.Reason, b.Reason))
	})
	return parts
}
