/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package resolve

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch

// Gather collects the facts of one intent from the cache.
func Gather(ctx context.Context, reader client.Reader, intent *volumesv1alpha1.VolumeAttachmentIntent) (Facts, error) {
	f := Facts{Intent: intent}
	var err error
	if f.Node, err = find(ctx, reader, client.ObjectKey{Name: intent.Spec.NodeName}, &corev1.Node{}); err != nil {
		return f, fmt.Errorf("reading node %s: %w", intent.Spec.NodeName, err)
	}
	switch source := intent.Spec.Volume; {
	case source.PodVolume != nil:
		err = f.gatherPod(ctx, reader, source.PodVolume)
	case source.PersistentVolumeClaim != nil:
		err = f.gatherClaim(ctx, reader, source.PersistentVolumeClaim)
	}
	return f, err
}

// gatherPod finds the pod and what its volume translates to.
func (f *Facts) gatherPod(ctx context.Context, reader client.Reader, source *volumesv1alpha1.PodVolumeSource) error {
	key := client.ObjectKey{Namespace: f.Intent.Namespace, Name: source.PodName}
	var err error
	if f.Pod, err = find(ctx, reader, key, &corev1.Pod{}); err != nil {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	if f.Pod == nil {
		return nil
	}
	for i := range f.Pod.Spec.Volumes {
		if v := &f.Pod.Spec.Volumes[i]; v.Name == source.VolumeName {
			f.Volume, f.VolumeErr = volume.Inline(f.Pod, v)
		}
	}
	return nil
}

// gatherClaim finds the claim and what it is bound to.
func (f *Facts) gatherClaim(
	ctx context.Context, reader client.Reader, source *volumesv1alpha1.PersistentVolumeClaimSource,
) error {
	claim := client.ObjectKey{Namespace: f.Intent.Namespace, Name: source.ClaimName}
	var err error
	if f.Claim, err = find(ctx, reader, claim, &corev1.PersistentVolumeClaim{}); err != nil {
		return fmt.Errorf("reading claim %s: %w", claim, err)
	}
	if f.Claim == nil {
		return nil
	}
	if class := storagehelpers.GetPersistentVolumeClaimClass(f.Claim); class != "" {
		if f.Class, err = find(ctx, reader, client.ObjectKey{Name: class}, &storagev1.StorageClass{}); err != nil {
			return fmt.Errorf("reading storage class %s: %w", class, err)
		}
	}
	if name := f.Claim.Spec.VolumeName; name != "" {
		if f.Volume, err = find(ctx, reader, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); err != nil {
			return fmt.Errorf("reading volume %s: %w", name, err)
		}
	}
	if f.Volume != nil {
		// One from the cache has been through this.
		f.Volume, f.VolumeErr = volume.Translated(f.Volume)
	}
	return nil
}

// VolumeName is the unique name of the volume that intent is pinned to or, not being pinned yet, that
// its claim is bound to; empty when there is none.
func VolumeName(
	ctx context.Context, reader client.Reader, intent *volumesv1alpha1.VolumeAttachmentIntent,
) (string, error) {
	if name := intent.Status.UniqueVolumeName; name != "" {
		return name, nil
	}
	f, err := Gather(ctx, reader, intent)
	if err != nil || f.Volume == nil {
		return "", err
	}
	return volume.UniqueNameOf(f.Volume), nil
}

// Volumes finds the PersistentVolumes with this unique name and, as if they were such, the volumes with this name
// in pods themselves.
func Volumes(ctx context.Context, reader client.Reader, name string) ([]corev1.PersistentVolume, error) {
	volumes := &corev1.PersistentVolumeList{}
	if err := reader.List(ctx, volumes, client.MatchingFields{index.Volume: name}); err != nil {
		return nil, fmt.Errorf("listing the PersistentVolumes of %s: %w", name, err)
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.MatchingFields{index.Volume: name}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", name, err)
	}
	found := volumes.Items
	for i := range pods.Items {
		for _, pv := range volume.InlineOf(&pods.Items[i]) {
			if volume.UniqueNameOf(pv) == name {
				found = append(found, *pv)
			}
		}
	}
	return found, nil
}

// Sources finds the sources of the volumes with this unique name: those of PersistentVolumes, and those that pods
// declare themselves.
func Sources(ctx context.Context, reader client.Reader, name string) ([]*volume.Source, error) {
	volumes, err := Volumes(ctx, reader, name)
	if err != nil {
		return nil, err
	}
	sources := make([]*volume.Source, 0, len(volumes))
	for i := range volumes {
		if s := volume.SourceOf(&volumes[i]); s != nil {
			sources = append(sources, s)
		}
	}
	return sources, nil
}

// find returns nil when the object does not exist.
func find[T client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey, object T) (T, error) {
	err := reader.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return object, err
	}
	if err != nil {
		var none T
		return none, nil
	}
	return object, nil
}
