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
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups="",resources=nodes;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch

// Gather collects the facts of one intent from the cache.
func Gather(ctx context.Context, reader client.Reader, intent *volumesv1alpha1.VolumeAttachmentIntent) (Facts, error) {
	f := Facts{Intent: intent}
	var err error
	if f.Node, err = find(ctx, reader, client.ObjectKey{Name: intent.Spec.NodeName}, &corev1.Node{}); err != nil {
		return f, fmt.Errorf("reading node %s: %w", intent.Spec.NodeName, err)
	}
	claim := client.ObjectKey{Namespace: intent.Namespace, Name: intent.Spec.Volume.PersistentVolumeClaim.ClaimName}
	if f.Claim, err = find(ctx, reader, claim, &corev1.PersistentVolumeClaim{}); err != nil {
		return f, fmt.Errorf("reading claim %s: %w", claim, err)
	}
	if f.Claim == nil {
		return f, nil
	}
	if class := storagehelpers.GetPersistentVolumeClaimClass(f.Claim); class != "" {
		if f.Class, err = find(ctx, reader, client.ObjectKey{Name: class}, &storagev1.StorageClass{}); err != nil {
			return f, fmt.Errorf("reading storage class %s: %w", class, err)
		}
	}
	if name := f.Claim.Spec.VolumeName; name != "" {
		if f.Volume, err = find(ctx, reader, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); err != nil {
			return f, fmt.Errorf("reading volume %s: %w", name, err)
		}
	}
	return f, nil
}

// VolumeName is the unique name of the volume that intent is pinned to or, not being pinned yet, that
// its claim is bound to; empty when there is none.
func VolumeName(ctx context.Context, reader client.Reader, intent *volumesv1alpha1.VolumeAttachmentIntent) (string, error) {
	if name := intent.Status.UniqueVolumeName; name != "" {
		return name, nil
	}
	f, err := Gather(ctx, reader, intent)
	if err != nil || f.Volume == nil {
		return "", err
	}
	return volume.UniqueNameOf(f.Volume), nil
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
