/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
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
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Register adds the controller to the manager. A cluster whose kinds are of an earlier version has no sets, and the
// manager does without them until it starts again.
func (c *Controller) Register(mgr manager.Manager) error {
	kind := volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntentSet")
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		mgr.GetLogger().Info("the kind VolumeAttachmentIntentSet is not installed, so there are no sets; apply config/crd " +
			"and start the manager again")
		return nil
	} else if err != nil {
		return fmt.Errorf("asking the API server for the kind %s: %w", kind.Kind, err)
	}
	b := ctrl.NewControllerManagedBy(mgr)
	if c.LabelNodes {
		c.labeller = newLabeller(c.Client, c.Clock, c.isLeaving)
		if err := c.labeller.register(mgr); err != nil {
			return fmt.Errorf("registering the controller of the labels of Nodes: %w", err)
		}
		b = b.WatchesRawSource(c.labeller.takes(&c.labeller.sets))
	}
	return b.
		Named("intentset").
		For(&volumesv1alpha1.VolumeAttachmentIntentSet{}, builder.WithPredicates(setChanged)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, c.intentHandler()).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.ofNode), builder.WithPredicates(c.nodeChanged())).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(c.ofName),
			builder.WithPredicates(deleted)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.ofNamespace), builder.OnlyMetadata,
			builder.WithPredicates(allowedChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: Workers, RateLimiter: backoff.Limiter()}).
		Complete(c)
}

// intentHandler wakes the set of an intent. A change of its state may wait for the next one; that it came or went, or
// that a name is free, may not.
func (c *Controller) intentHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			for _, request := range ofIntent(e.Object) {
				q.AddAfter(request, settle)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !stateChanged(e.ObjectOld, e.ObjectNew) {
				return
			}
			for _, request := range append(ofIntent(e.ObjectOld), ofIntent(e.ObjectNew)...) {
				q.AddAfter(request, settle)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			c.leaving.Delete(e.Object.GetUID())
			for _, request := range append(ofIntent(e.Object), c.ofName(ctx, e.Object)...) {
				q.Add(request)
			}
		},
	}
}

func ofIntent(o client.Object) []reconcile.Request {
	intent, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if !ok || index.SetOf(intent) == "" {
		return nil
	}
	return []reconcile.Request{
		{NamespacedName: client.ObjectKey{Namespace: intent.Namespace, Name: index.SetOf(intent)}},
	}
}

// stateChanged ignores what the set does not count.
func stateChanged(before, after client.Object) bool {
	was, is := before.(*volumesv1alpha1.VolumeAttachmentIntent), after.(*volumesv1alpha1.VolumeAttachmentIntent)
	if was.UID != is.UID || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() || ready(was) != ready(is) ||
		!maps.Equal(was.Labels, is.Labels) || !reflect.DeepEqual(was.OwnerReferences, is.OwnerReferences) {
		return true
	}
	for _, t := range []string{volumesv1alpha1.ConditionReady, volumesv1alpha1.ConditionStalled} {
		x, y := meta.FindStatusCondition(was.Status.Conditions, t), meta.FindStatusCondition(is.Status.Conditions, t)
		if (x == nil) != (y == nil) || x != nil && (x.Status != y.Status || x.Reason != y.Reason) {
			return true
		}
	}
	return false
}

// ofNode wakes the sets that select the Node. For an update it is called with the old and with the new one.
func (c *Controller) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	return c.sets(ctx, "", func(set *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
		selector, err := selectorOf(set)
		return err == nil && selector.Matches(labels.Set(node.GetLabels()))
	})
}

// ofName wakes the sets for which the object, which is gone, may have had the name of theirs.
func (c *Controller) ofName(ctx context.Context, o client.Object) []reconcile.Request {
	return c.sets(ctx, o.GetNamespace(), func(set *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
		return strings.HasPrefix(o.GetName(), set.Name+"-")
	})
}

func (c *Controller) ofNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return c.sets(ctx, namespace.GetName(), func(*volumesv1alpha1.VolumeAttachmentIntentSet) bool { return true })
}

// sets of a namespace, or of all of them if it is empty. There are few.
func (c *Controller) sets(
	ctx context.Context, namespace string, concerns func(*volumesv1alpha1.VolumeAttachmentIntentSet) bool,
) []reconcile.Request {
	list := &volumesv1alpha1.VolumeAttachmentIntentSetList{}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the sets of intents", "namespace", namespace)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if set := &list.Items[i]; concerns(set) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
	return requests
}

// setChanged ignores the controller's own updates of the status.
var setChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntentSet),
			e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntentSet)
		return was.UID != is.UID || was.Generation != is.Generation || is.Status.ObservedGeneration != is.Generation
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// nodeChanged lets through what selects a node, and that it goes or stays.
func (c *Controller) nodeChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return c.goes(was) != c.goes(is) || cached.NodeLabelsDiffer(was, is)
		},
	}
}

// deleted lets through that an object is gone.
var deleted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// allowedChanged lets through that a namespace may use other nodes.
var allowedChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		const key = volumesv1alpha1.AllowedNodesAnnotation
		was, before := e.ObjectOld.GetAnnotations()[key]
		is, after := e.ObjectNew.GetAnnotations()[key]
		return was != is || before != after
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}
