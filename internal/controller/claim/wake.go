/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// ofIntent wakes the intent's claim where its use may matter. What else happens to a claim is an event of its own.
func (c *Controller) ofIntent(ctx context.Context, o client.Object) []reconcile.Request {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	requests := claimOf(intent)
	if len(requests) == 0 {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Client.Get(ctx, requests[0].NamespacedName, claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && settled(claim, intent) {
		// The mark comes and goes with the intents.
		if refused, err := c.refused(ctx, claim); err == nil && !refused {
			return nil
		}
	}
	return requests
}

func claimOf(intent *volumesv1alpha1.VolumeAttachmentIntent) []reconcile.Request {
	if intent.Spec.Volume.PersistentVolumeClaim == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{
		Namespace: intent.Namespace, Name: intent.Spec.Volume.PersistentVolumeClaim.ClaimName,
	}}}
}

// settled: there is nothing to do for the claim, whether the intent uses it or not. One that the kubelet publishes
// does not count.
func settled(claim *corev1.PersistentVolumeClaim, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	switch {
	case waitsForNode(claim):
		return false
	case intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet:
		return true
	}
	guarded := controllerutil.ContainsFinalizer(claim, volumesv1alpha1.ClaimFinalizer)
	return claim.DeletionTimestamp.IsZero() && (guarded || !status.HoldsClaim(intent))
}

// Protected lets through that a claim came to be protected.
var Protected = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return protected(e.ObjectOld, e.ObjectNew) },
}

// protected: the claim was not before, and is now.
func protected(before, after client.Object) bool {
	return !controllerutil.ContainsFinalizer(before, volumesv1alpha1.ClaimFinalizer) && controllerutil.ContainsFinalizer(
		after, volumesv1alpha1.ClaimFinalizer,
	)
}

// Changed lets every change of a claim through but that it was protected here, which needs no reconcile.
var Changed = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !onlyProtected(e.ObjectOld.(*corev1.PersistentVolumeClaim), e.ObjectNew.(*corev1.PersistentVolumeClaim))
	},
}

func onlyProtected(before, after *corev1.PersistentVolumeClaim) bool {
	if !protected(before, after) {
		return false
	}
	now := *after
	now.ResourceVersion = before.ResourceVersion
	now.Finalizers = slices.Clone(after.Finalizers)
	controllerutil.RemoveFinalizer(&now, volumesv1alpha1.ClaimFinalizer)
	if !marked(before) {
		now.Annotations = maps.Clone(after.Annotations)
		delete(now.Annotations, volumesv1alpha1.InUseAnnotation)
	}
	return equality.Semantic.DeepEqual(*before, now)
}

// intentUse lets through what changes whether an intent uses its claim.
var intentUse = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntent),
			e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntent)
		return before.Status.ClaimUID != after.Status.ClaimUID ||
			after.Status.ClaimUID == "" && refused(before) != refused(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			status.HoldsClaim(before) != status.HoldsClaim(after)
	},
}

// expandedHandler wakes the claims of volumes whose capacity on a node changed, or that a node can never expand.
func expandedHandler(reader client.Reader) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(ctx context.Context, before, after *volumesv1alpha1.NodeVolumeState, q queue) {
		for i := range after.Status.Volumes {
			v := &after.Status.Volumes[i]
			was := handshake.VolumeOf(before, v.VolumeName)
			failed := infeasibleExpansion(v) != "" && (was == nil || infeasibleExpansion(was) != infeasibleExpansion(v))
			if same := was != nil && was.Capacity != nil && v.Capacity != nil && was.Capacity.Cmp(*v.Capacity) == 0; !failed &&
				(v.Capacity == nil || same) {
				continue
			}
			intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
			if err := reader.List(ctx, intents, client.MatchingFields{index.Volume: v.VolumeName}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "listing intents", "volume", v.VolumeName)
				continue
			}
			for j := range intents.Items {
				for _, r := range claimOf(&intents.Items[j]) {
					q.Add(r)
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			wake(ctx, &volumesv1alpha1.NodeVolumeState{}, e.Object.(*volumesv1alpha1.NodeVolumeState), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			wake(ctx, e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState), q)
		},
	}
}
