/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package claim protects PersistentVolumeClaims that intents use from being removed under what
// an agent mounts, because Kubernetes' own protection counts pods only, and it writes into their status what the node's
// agent made of an expansion.
package claim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch

// Workers reconcile so many claims at once.
const Workers = 32

// Controller reconciles claims.
type Controller struct {
	Client client.Client
	// Limiter is shared with the controller of the attachments.
	Limiter *inflight.Limiter
	Events  events.EventRecorder
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	waiting := c.Limiter.Queue()
	return ctrl.NewControllerManagedBy(mgr).
		Named("claim").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(Changed)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, handler.EnqueueRequestsFromMapFunc(c.ofIntent),
			cached.SinceStart(intentUse)).
		Watches(&volumesv1alpha1.NodeVolumeState{}, expandedHandler(c.Client)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.ofNamespace), builder.OnlyMetadata,
			builder.WithPredicates(refusalChanged)).
		WithOptions(
			controller.Options{MaxConcurrentReconciles: Workers, NewQueue: waiting.New, RateLimiter: backoff.Limiter()},
		).
		Complete(waiting.Reconciler(c))
}

// Reconcile one claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Client.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents,
		client.MatchingFields{index.Claim: index.ClaimKey(claim.Namespace, claim.Name)}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the intents of claim %s: %w", req, err)
	}
	c.warn(claim, intents.Items)
	if err := c.protect(ctx, claim, intents.Items); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, c.expanded(ctx, claim, intents.Items)
}

// protect sets the claim's finalizer and its mark when an intent comes to use it, and takes the finalizer off when the
// claim is being deleted and no intent uses it any more. In between both stay, as Kubernetes' own finalizer does: it
// would cost a write for each detach and each attach. Where the mark has deletions refused, it goes with the last
// intent.
func (c *Controller) protect(
	ctx context.Context, cached *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent,
) error {
	claim := cached.DeepCopy()
	changed := false
	refused, err := c.refused(ctx, claim)
	if err != nil {
		return err
	}
	switch deleting, use := !claim.DeletionTimestamp.IsZero(), used(claim, intents); {
	case !deleting && use == inUse:
		// An earlier version set the finalizer alone.
		changed = controllerutil.AddFinalizer(claim, volumesv1alpha1.ClaimFinalizer)
		if changed || refused && !marked(claim) {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volumesv1alpha1.InUseAnnotation, "true")
			changed = true
		}
	case !deleting && use == unused && refused && marked(claim):
		delete(claim.Annotations, volumesv1alpha1.InUseAnnotation)
		changed = true
	case deleting && use == unused:
		changed = controllerutil.RemoveFinalizer(claim, volumesv1alpha1.ClaimFinalizer)
	}
	if !changed {
		return nil
	}
	err = c.Client.Patch(ctx, claim, client.MergeFromWithOptions(cached, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("changing the finalizer of claim %s/%s: %w", claim.Namespace, claim.Name, err)
}

type use int

const (
	unused use = iota
	// leaving: only intents that are on their way out. Nothing is added for them, but a claim that is being deleted waits.
	leaving
	inUse
)

// refused reports whether it was written that the intent does not come to use its claim, which is being deleted.
func refused(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionResolved)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == volumesv1alpha1.ReasonClaimDeleting
}

// used reports whether intents that hold their claim use this very one. An intent counts until it is gone.
func used(claim *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent) use {
	result := unused
	for i := range intents {
		intent := &intents[i]
		if !status.HoldsClaim(intent) {
			continue
		}
		pinned := intent.Status.ClaimUID
		switch {
		case pinned != "" && pinned != claim.UID:
		case pinned == "" && claim.Status.Phase != corev1.ClaimBound:
			// It does not use the claim yet, and may never come to.
		case pinned == "" && !claim.DeletionTimestamp.IsZero():
			// It does not come to use the claim any more. The write that says so voids a pin that was decided on before it.
			if intent.DeletionTimestamp.IsZero() && !refused(intent) {
				result = leaving
			}
		case intent.DeletionTimestamp.IsZero():
			return inUse
		default:
			result = leaving
		}
	}
	return result
}
