/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Register adds the controller to the manager; it fails on settings that make no sense. Switched off, it makes the
// intents of inline volumes alone.
func (c *Controller) Register(mgr manager.Manager) error {
	if err := c.check(); err != nil {
		return err
	}
	mapped, later := handler.EnqueueRequestsFromMapFunc, cached.SinceStart
	b := ctrl.NewControllerManagedBy(mgr).
		Named("pod").
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, c.intentHandler()).
		Watches(&corev1.Pod{}, c.podHandler(), builder.WithPredicates(predicate.NewPredicateFuncs(c.concerns))).
		Watches(&corev1.Node{}, mapped(c.ofNode), later(nodeChanged))
	if c.Enabled {
		b = b.Watches(&corev1.PersistentVolumeClaim{}, mapped(c.ofClaim), later(claimChanged)).
			Watches(&corev1.PersistentVolume{}, mapped(c.ofVolume), later(volumeChanged)).
			Watches(&storagev1.CSIDriver{}, mapped(c.ofDriver), later(driverChanged))
	}
	waiting := c.Limiter.Queue()
	return b.WithOptions(
		controller.Options{MaxConcurrentReconciles: Workers, NewQueue: waiting.New, RateLimiter: backoff.Limiter()},
	).Complete(waiting.Reconciler(c))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func add(o client.Object, q queue) {
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// intentHandler wakes the pod of an intent that is gone, unless the pod is too, and of one that came although the pod
// is not there.
func (c *Controller) intentHandler() handler.EventHandler {
	wake := func(ctx context.Context, o client.Object, gone bool, q queue) {
		intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
		name, uid, ok := index.PodOf(intent)
		if !ok {
			return
		}
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = o.GetNamespace(), name
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		switch {
		case !c.Enabled && !publishedByAgent(intent):
		case gone && apierrors.IsNotFound(err):
			c.over.CompareAndDelete(client.ObjectKeyFromObject(pod), uid)
			return
		case !gone && err == nil && pod.UID == uid:
			return
		}
		add(pod, q)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, false, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			c.leaving.Delete(e.Object.GetUID())
			wake(ctx, e.Object, true, q)
		},
	}
}

// podHandler wakes a pod when it comes to use volumes or stops using them, and remembers which ones are over.
func (c *Controller) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			switch {
			case was.UID != is.UID:
				c.over.Store(client.ObjectKeyFromObject(is), was.UID)
			case index.Terminated(is):
				c.over.Store(client.ObjectKeyFromObject(is), is.UID)
			}
			if was.UID != is.UID || index.UsesVolumes(was) != index.UsesVolumes(is) ||
				was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() {
				add(is, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			c.over.Store(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
			add(e.Object, q)
		},
	}
}

func (c *Controller) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return c.pods(ctx, index.Claim, index.ClaimKey(claim.GetNamespace(), claim.GetName()))
}

// ofVolume wakes the pods of the claim that the volume belongs to.
func (c *Controller) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return c.pods(ctx, index.Claim, index.ClaimKey(ref.Namespace, ref.Name))
}

// ofNode wakes the pods that are bound to the node, as far as they concern the controller. A pod may come into the
// cache before its Node.
func (c *Controller) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Node: node.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the pods of a node", "node", node.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if pod := &list.Items[i]; c.concerns(pod) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return requests
}

// ofDriver wakes every volume of the driver. Drivers hardly ever change.
func (c *Controller) ofDriver(ctx context.Context, driver client.Object) []reconcile.Request {
	volumes := &corev1.PersistentVolumeList{}
	if err := c.Client.List(ctx, volumes); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the volumes of a driver", "driver", driver.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range volumes.Items {
		if pv := &volumes.Items[i]; volume.DriverOf(pv) == driver.GetName() {
			requests = append(requests, c.ofVolume(ctx, pv)...)
		}
	}
	return requests
}

func (c *Controller) pods(ctx context.Context, field, key string) []reconcile.Request {
	return index.Found(ctx, c.Client, &corev1.PodList{}, field, key)
}

// claimChanged lets through what resolving reads.
var claimChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.PersistentVolumeClaim), e.ObjectNew.(*corev1.PersistentVolumeClaim)
		return was.UID != is.UID || was.Spec.VolumeName != is.Spec.VolumeName || was.Status.Phase != is.Status.Phase ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences)
	},
}

// volumeChanged lets through that a volume came, belongs to another claim, or may be used elsewhere or as something
// else.
var volumeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.PersistentVolume), e.ObjectNew.(*corev1.PersistentVolume)
		return was.UID != is.UID || !equality.Semantic.DeepEqual(was.Spec, is.Spec)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// inService is false of a Node whose pods are abandoned once they are being deleted.
func inService(node *corev1.Node) bool {
	return handshake.OutOfService(node) == nil || liveness.Ready(node)
}

// nodeChanged lets through what reports whether pods of the node get intents, and what resolving reads.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return managed(was) != managed(is) || cached.NodeLabelsDiffer(was, is) || inService(was) != inService(is) ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// driverChanged lets through that a driver came or went that differs from an undescribed one.
var driverChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !attaches(e.Object.(*storagev1.CSIDriver)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return attaches(e.ObjectOld.(*storagev1.CSIDriver)) != attaches(e.ObjectNew.(*storagev1.CSIDriver))
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return !attaches(e.Object.(*storagev1.CSIDriver)) },
}
