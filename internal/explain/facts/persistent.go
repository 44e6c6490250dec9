/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// fewVolumes is how many PersistentVolumes are read one by one. Of more than these the list of all is read.
const fewVolumes = 20

// Persistent reads the PersistentVolumes of these names. What cannot be read is left out.
func (g *Gatherer) Persistent(ctx context.Context, names []string) map[string]*corev1.PersistentVolume {
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(n string) bool { return n == "" })
	volumes := map[string]*corev1.PersistentVolume{}
	if len(names) <= fewVolumes {
		for _, name := range names {
			if pv := get[corev1.PersistentVolume](ctx, g, KindVolume, "", name); pv.Found {
				volumes[name] = pv.Value
			}
		}
		return volumes
	}
	all, err := list[corev1.PersistentVolumeList](ctx, g, "PersistentVolumes")
	if err != nil {
		return volumes
	}
	for i := range all.Items {
		pv := &all.Items[i]
		if _, wanted := slices.BinarySearch(names, pv.Name); wanted {
			volumes[pv.Name] = pv
		}
	}
	return volumes
}

// PersistentOf reads the PersistentVolumes that are attached to the nodes of some states.
func (g *Gatherer) PersistentOf(ctx context.Context, states []volumesv1alpha1.NodeVolumeState,
) map[string]*corev1.PersistentVolume {
	var names []string
	for i := range states {
		for j := range states[i].Spec.Attachments {
			names = append(names, states[i].Spec.Attachments[j].PersistentVolumeName)
		}
	}
	return g.Persistent(ctx, names)
}

// ClaimName is the claim of a PersistentVolume, with its namespace; empty if it has none.
func ClaimName(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

// PersistentName is the name of a volume's PersistentVolume; empty if the node state does not have it.
func PersistentName(state *volumesv1alpha1.NodeVolumeState, volumeName string) string {
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; e.VolumeName == volumeName {
			return e.PersistentVolumeName
		}
	}
	return ""
}

// claims reads the PersistentVolumes of a node whose claims no intent there names.
func (g *Gatherer) claims(ctx context.Context, state *volumesv1alpha1.NodeVolumeState) {
	var names []string
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; g.facts.ClaimOf(state, e.VolumeName) == "" {
			names = append(names, e.PersistentVolumeName)
		}
	}
	g.facts.Persistent = g.Persistent(ctx, names)
}

// ClaimOf names the claim of a volume on the node that is the subject: as its PersistentVolume has it, or the intents
// there. It is empty if neither does.
func (f *Facts) ClaimOf(state *volumesv1alpha1.NodeVolumeState, volumeName string) string {
	if claim := ClaimName(f.Persistent[PersistentName(state, volumeName)]); claim != "" {
		return claim
	}
	for i := range f.NodeIntents.Items {
		intent := &f.NodeIntents.Items[i]
		source := intent.Spec.Volume.PersistentVolumeClaim
		if source != nil && intent.Status.UniqueVolumeName == volumeName {
			return intent.Namespace + "/" + source.ClaimName
		}
	}
	return ""
}

// NamesOf are the PersistentVolume and the claim of a volume on the node that is the subject, as far as they are known.
func (f *Facts) NamesOf(state *volumesv1alpha1.NodeVolumeState, volumeName string) string {
	var texts []string
	if pv := PersistentName(state, volumeName); pv != "" {
		texts = append(texts, KindVolume+" "+pv)
	}
	if claim := f.ClaimOf(state, volumeName); claim != "" {
		texts = append(texts, "claim "+claim)
	}
	return strings.Join(texts, ", ")
}
