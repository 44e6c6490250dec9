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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// fewVolumes is how many PersistentVolumes are read one by one. Of more than these the list of all is read.
const fewVolumes = 20

// Persistent reads the PersistentVolumes of these names. What cannot be read is left out, with the error.
func (g *Gatherer) Persistent(ctx context.Context, names []string) (map[string]*corev1.PersistentVolume, error) {
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(n string) bool { return n == "" })
	volumes := map[string]*corev1.PersistentVolume{}
	if len(names) <= fewVolumes {
		var failed error
		for _, name := range names {
			switch pv := get[corev1.PersistentVolume](ctx, g, KindVolume, "", name); {
			case pv.Found:
				volumes[name] = pv.Value
			case pv.Unread() != "":
				failed = pv.Err
			}
		}
		return volumes, failed
	}
	all, err := list[corev1.PersistentVolumeList](ctx, g, "PersistentVolumes")
	for i := range all.Items {
		pv := &all.Items[i]
		if _, wanted := slices.BinarySearch(names, pv.Name); wanted {
			volumes[pv.Name] = pv
		}
	}
	return volumes, err
}

// PersistentOf reads the PersistentVolumes that are attached to the nodes of some states.
func (g *Gatherer) PersistentOf(ctx context.Context, states []volumesv1alpha1.NodeVolumeState,
) (map[string]*corev1.PersistentVolume, error) {
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

// Owns reports whether a claim of the name that a PersistentVolume refers to is that claim, or names the volume itself.
// A claim that was created again belongs to another volume.
func Owns(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	uid := pv.Spec.ClaimRef.UID
	return uid == "" || uid == claim.UID || claim.Spec.VolumeName == pv.Name
}

// MayPrecede reports whether a pod may be older than a claim, and so may use the one that had its name before: a claim
// can go while pods use it, if its finalizer is removed. Times of creation have whole seconds.
func MayPrecede(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !pod.CreationTimestamp.After(claim.CreationTimestamp.Time)
}

// owner reads the claim of a PersistentVolume that refers to one. It is not found if another claim has its name.
func (g *Gatherer) owner(ctx context.Context, pv *corev1.PersistentVolume,
) (claim Object[*corev1.PersistentVolumeClaim], other *corev1.PersistentVolumeClaim) {
	ref := pv.Spec.ClaimRef
	claim = get[corev1.PersistentVolumeClaim](ctx, g, KindClaim, ref.Namespace, ref.Name)
	if !claim.Found || Owns(claim.Value, pv) {
		return claim, nil
	}
	gone := apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), ref.Name)
	return Object[*corev1.PersistentVolumeClaim]{Ref: claim.Ref, Err: gone}, claim.Value
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
	g.facts.Persistent, _ = g.Persistent(ctx, names) // without it only the names of claims are missing
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

// kept reads the PersistentVolume that an intent keeps to, where its claim has another one by now.
func (g *Gatherer) kept(ctx context.Context, v *Volume) {
	if name := v.Intent.Value.Status.VolumeName; name != v.Volume.Ref.Name {
		v.Kept = get[corev1.PersistentVolume](ctx, g, KindVolume, "", name)
	}
}

// KeepsNode reports whether the deletion of its Node waits for an intent. The intents of pods end with their pods.
func KeepsNode(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	owner := metav1.GetControllerOf(intent)
	return intent.DeletionTimestamp == nil && intent.Spec.OnNodeDeletion != volumesv1alpha1.OnNodeDeletionRelease &&
		(owner == nil || owner.Kind != KindPod)
}

// keepers reads the claims and the PersistentVolumes of the intents that the deletion of the Node waits for.
func (g *Gatherer) keepers(ctx context.Context) {
	for i := range g.facts.NodeIntents.Items {
		intent := &g.facts.NodeIntents.Items[i]
		source := intent.Spec.Volume.PersistentVolumeClaim
		if !KeepsNode(intent) || source == nil {
			continue
		}
		v := Volume{Intent: Object[*volumesv1alpha1.VolumeAttachmentIntent]{Value: intent, Found: true,
			Ref: Ref{KindIntent, intent.Namespace, intent.Name}},
			Claim: get[corev1.PersistentVolumeClaim](ctx, g, KindClaim, intent.Namespace, source.ClaimName)}
		g.kept(ctx, &v)
		g.facts.Keepers = append(g.facts.Keepers, v)
	}
}
