/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get

// ensureFinalizer sets the release finalizer on an intent that came to need it after it was made, or that the
// admission policy has not seen. It permits the agent to mount, so the claim is protected first. It reports whether
// it wrote.
func (c *Controller) ensureFinalizer(
	ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent, claim *corev1.PersistentVolumeClaim,
) (bool, error) {
	intent := cached.DeepCopy()
	if !status.NeedsFinalizer(cached) || !controllerutil.AddFinalizer(intent, volumesv1alpha1.ReleaseFinalizer) {
		return false, nil
	}
	if safe, err := c.claimSafe(ctx, cached, claim); err != nil || !safe {
		return false, err
	}
	return true, c.patch(ctx, cached, intent)
}

// claimSafe: the intent's claim does not go before the intent, or the intent is not pinned to it yet, which waits for
// the same. The claim is read live, for the claims' controller may not have known yet that the intent holds it: of a
// claim that is deleted after that it does know.
func (c *Controller) claimSafe(
	ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent, cached *corev1.PersistentVolumeClaim,
) (bool, error) {
	if !status.HoldsClaim(intent) || intent.Status.ClaimUID == "" {
		return true, nil
	}
	if !kept(intent, cached) {
		return false, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(cached), claim); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return kept(intent, claim), nil
}

// kept: the claim is the one that the intent is pinned to, and its deletion would wait.
func kept(intent *volumesv1alpha1.VolumeAttachmentIntent, claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.UID == intent.Status.ClaimUID && claim.DeletionTimestamp.IsZero() &&
		controllerutil.ContainsFinalizer(claim, volumesv1alpha1.ClaimFinalizer)
}

// abandon lets go of an intent that was never pinned to a volume: no agent has acted on it, and
// an attachment that was on its way is taken back by the attachment controller on its own.
func (c *Controller) abandon(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent) error {
	if cached.Status.UniqueVolumeName != "" {
		return nil
	}
	intent := cached.DeepCopy()
	if !controllerutil.RemoveFinalizer(intent, volumesv1alpha1.ReleaseFinalizer) {
		return nil
	}
	return c.patch(ctx, cached, intent)
}

// patch carries the resourceVersion that was decided on; a conflict means that a newer intent is on its way here.
func (c *Controller) patch(ctx context.Context, before, after *volumesv1alpha1.VolumeAttachmentIntent) error {
	err := c.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil || superseded(err) {
		return nil
	}
	return fmt.Errorf("changing the finalizer of intent %s/%s: %w", before.Namespace, before.Name, err)
}

// superseded: a newer intent, or its end, is on its way here.
func superseded(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
