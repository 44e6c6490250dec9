/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Register adds the controller to the manager.
//
// Whatever a pod waits for leads to it by an index. A pod is also reconciled after its own condition has come into the
// cache. So an event before that, which did not find the pod by its reason, is not missed.
func (c *Controller) Register(mgr manager.Manager) error {
	mapped, later := handler.EnqueueRequestsFromMapFunc, cached.SinceStart
	holders := mapped(c.waitingFor(volumesv1alpha1.ReasonVolumeInUse, volumesv1alpha1.ReasonReadWriteOncePod))
	nodes := mapped(c.waitingFor(volumesv1alpha1.ReasonNodeNotFound, volumesv1alpha1.ReasonConstraintsContradict,
		volumesv1alpha1.ReasonVolumeInUse, volumesv1alpha1.ReasonNodeLimitReached))
	// The topologies of a class may change.
	classes := mapped(c.waitingFor(volumesv1alpha1.ReasonStorageClassNotFound, volumesv1alpha1.ReasonClaimNotBound,
		volumesv1alpha1.ReasonNoProvisioner, volumesv1alpha1.ReasonConstraintsContradict,
		volumesv1alpha1.ReasonNodeLimitReached))
	room := mapped(c.waitingFor(volumesv1alpha1.ReasonNodeLimitReached))
	c.turns = newTurns()
	return ctrl.NewControllerManagedBy(mgr).
		Named("placement").
		Watches(&corev1.Pod{}, mapped(c.ofPod), builder.WithPredicates(podChanged)).
		Watches(&corev1.PersistentVolumeClaim{}, mapped(c.ofClaim), later()).
		Watches(&corev1.PersistentVolume{}, mapped(c.ofVolume), later()).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, mapped(c.ofIntent), later(intentChanged)).
		Watches(&storagev1.StorageClass{}, classes, later()).
		Watches(&corev1.Node{}, nodes, later(nodeChanged)).
		Watches(&volumesv1alpha1.NodeVolumeState{}, holders, later(useEnded)).
		Watches(&corev1.ConfigMap{}, holders, later()).
		Watches(&storagev1.CSIDriver{}, room, later()).
		Watches(&storagev1.CSINode{}, room, later()).
		Watches(&storagev1.CSIStorageCapacity{}, room, later()).
		Watches(&storagev1.VolumeAttachment{}, room, later(attachmentChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: backoff.Limiter()}).
		Complete(c)
}

// gated returns the gated pods that an index has under a key.
func (c *Controller) gated(ctx context.Context, field, key string) []reconcile.Request {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{field: key}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing gated pods", "by", field, "key", key)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if pod := &list.Items[i]; !index.Ungated(pod) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return requests
}

// waitingFor returns the pods that wait for one of these reasons.
func (c *Controller) waitingFor(reasons ...string) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, reason := range reasons {
			requests = append(requests, c.gated(ctx, index.Gated, reason)...)
		}
		return requests
	}
}

// ofPod returns the pod if it is gated, and the gated pods of the claims that it uses.
func (c *Controller) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*corev1.Pod)
	var requests []reconcile.Request
	if !index.Ungated(pod) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	}
	claims := index.PodClaims(pod)
	for i := range pod.Spec.Volumes {
		if claim, _, _ := index.Inline(&pod.Spec.Volumes[i]); claim != "" {
			claims = append(claims, claim)
		}
	}
	for _, claim := range claims {
		requests = append(requests, c.gated(ctx, index.InlineClaim, index.ClaimKey(pod.Namespace, claim))...)
	}
	return requests
}

// podChanged lets through what decides about the pod itself or about another pod of its claim.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return !index.Ungated(is) || !index.Ungated(was) || was.UID != is.UID ||
			was.Spec.NodeName != is.Spec.NodeName || index.Terminated(was) != index.Terminated(is) ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	},
}

func (c *Controller) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return c.gated(ctx, index.InlineClaim, index.ClaimKey(claim.GetNamespace(), claim.GetName()))
}

// ofVolume returns the gated pods of the claim that the volume belongs to.
func (c *Controller) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return c.gated(ctx, index.InlineClaim, index.ClaimKey(ref.Namespace, ref.Name))
}

// ofIntent returns the gated pods that name the intent, those of its claim, and those that wait for any holder: it may
// lead to their volume by another claim.
func (c *Controller) ofIntent(ctx context.Context, o client.Object) []reconcile.Request {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	requests := c.gated(ctx, index.InlineIntent, index.ClaimKey(intent.Namespace, intent.Name))
	if claim := intent.Spec.Volume.PersistentVolumeClaim; claim != nil {
		requests = append(requests, c.gated(ctx, index.InlineClaim, index.ClaimKey(intent.Namespace, claim.ClaimName))...)
	}
	return append(requests, c.waitingFor(volumesv1alpha1.ReasonVolumeInUse,
		volumesv1alpha1.ReasonReadWriteOncePod)(ctx, o)...)
}

// intentChanged lets through that an intent came, went, is being deleted or was pinned to a volume.
var intentChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was := e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntent)
		is := e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntent)
		return was.UID != is.UID || was.Status.UniqueVolumeName != is.Status.UniqueVolumeName ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	},
}

// useEnded lets through that a node does not use a volume any more, or that evidence replaces its report.
var useEnded = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
		return slices.ContainsFunc(volumesOf(was), func(name string) bool {
			return holds(handshake.NodeOf(was, name)) && !holds(handshake.NodeOf(is, name))
		})
	},
}

func volumesOf(state *volumesv1alpha1.NodeVolumeState) []string {
	names := make([]string, 0, len(state.Spec.Attachments)+len(state.Status.Volumes))
	for i := range state.Spec.Attachments {
		names = append(names, state.Spec.Attachments[i].VolumeName)
	}
	for i := range state.Status.Volumes {
		names = append(names, state.Status.Volumes[i].VolumeName)
	}
	return names
}

// attachmentChanged lets through that an attachment came, which may be that of the pod's own volume, or that it does
// not count any more.
var attachmentChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*storagev1.VolumeAttachment), e.ObjectNew.(*storagev1.VolumeAttachment)
		return handshake.AttachmentFrom(was).Gone() != handshake.AttachmentFrom(is).Gone()
	},
}

// nodeChanged lets through that a node came, went or has other labels.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
}
