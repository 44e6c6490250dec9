/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

func (c *Controller) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return c.intents(ctx, index.Claim, index.ClaimKey(claim.GetNamespace(), claim.GetName()))
}

// ofProtected wakes the intents of a claim that waited for its protection to get their finalizer.
func (c *Controller) ofProtected(ctx context.Context, claim client.Object) []reconcile.Request {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents,
		client.MatchingFields{index.Claim: index.ClaimKey(claim.GetNamespace(), claim.GetName())}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents", "claim", client.ObjectKeyFromObject(claim))
		return nil
	}
	var requests []reconcile.Request
	for i := range intents.Items {
		if intent := &intents.Items[i]; status.NeedsFinalizer(intent) && !status.Finalized(intent) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(intent)})
		}
	}
	return requests
}

// ofVolume wakes the intents of the claim that the volume belongs to.
func (c *Controller) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return c.intents(ctx, index.Claim, index.ClaimKey(ref.Namespace, ref.Name))
}

// ofPod wakes the intents for volumes in the pod itself.
func (c *Controller) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*corev1.Pod)
	var requests []reconcile.Request
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; volume.MigratedInline(v) {
			requests = append(
				requests, c.intents(ctx, index.Claim, index.ClaimKey(pod.Namespace, volume.InlineClaim(pod.Name, v.Name)))...,
			)
		}
	}
	return requests
}

// ofClass wakes the intents whose claims wait in a storage class. Classes hardly ever change.
func (c *Controller) ofClass(ctx context.Context, class client.Object) []reconcile.Request {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.Client.List(ctx, claims); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing claims", "storageClass", class.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Spec.VolumeName == "" && storagehelpers.GetPersistentVolumeClaimClass(claim) == class.GetName() {
			requests = append(requests, c.ofClaim(ctx, claim)...)
		}
	}
	return requests
}

// ofNode serves for Nodes and NodeVolumeStates alike, which have the same name.
func (c *Controller) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	return c.intents(ctx, index.Node, node.GetName())
}

func (c *Controller) intents(ctx context.Context, field, key string) []reconcile.Request {
	return index.Found(ctx, c.Client, &volumesv1alpha1.VolumeAttachmentIntentList{}, field, key)
}

// podChanged lets through that a pod is bound to a node, or is another one.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return was.UID != is.UID || was.Spec.NodeName != is.Spec.NodeName
	},
}

// nodeChanged lets through what resolving reads.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return cached.NodeLabelsDiffer(e.ObjectOld, e.ObjectNew) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
}

// reachabilityChanged lets through that an agent was lost or found.
var reachabilityChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return unreachableMessage(e.Object.(*volumesv1alpha1.NodeVolumeState)) != ""
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		return unreachableMessage(e.ObjectOld.(*volumesv1alpha1.NodeVolumeState)) != unreachableMessage(
			e.ObjectNew.(*volumesv1alpha1.NodeVolumeState),
		)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}
