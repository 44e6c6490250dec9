/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package intent reconciles one intent at a time: can it be resolved, and can its agent be heard. What an
// intent that resolves leads to is the attachment controller's work; on the way to Attached this
// controller writes nothing.
//
// Phases: resolve, leave with the Node, finalizer, select the node of a claim that waits for it, report; and, for an
// intent that is deleted before it was pinned to a volume, abandon.
package intent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/claim"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// Workers reconcile so many intents at once.
const Workers = 16

// Controller reconciles intents.
type Controller struct {
	Client client.Client
	// Reader reads live.
	Reader   client.Reader
	Reporter *intentstatus.Reporter
	// Named has, by the UID of the claim, when nodes may be named to claims again.
	Named *flowcontrol.Backoff
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	mapped, later := handler.EnqueueRequestsFromMapFunc, cached.SinceStart
	return ctrl.NewControllerManagedBy(mgr).
		Named("intent").
		For(&volumesv1alpha1.VolumeAttachmentIntent{}).
		Watches(&corev1.PersistentVolumeClaim{}, mapped(c.ofClaim), later(claim.Changed)).
		Watches(&corev1.PersistentVolumeClaim{}, mapped(c.ofProtected), later(claim.Protected)).
		Watches(&corev1.PersistentVolume{}, mapped(c.ofVolume), later()).
		Watches(&corev1.Pod{}, mapped(c.ofPod), later(podChanged)).
		Watches(&storagev1.StorageClass{}, mapped(c.ofClass), later()).
		Watches(&corev1.Node{}, mapped(c.ofNode), later(nodeChanged)).
		Watches(&volumesv1alpha1.NodeVolumeState{}, mapped(c.ofNode), later(reachabilityChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: Workers, RateLimiter: backoff.Limiter()}).
		Complete(c)
}

// Reconcile one intent.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := c.Client.Get(ctx, req.NamespacedName, intent); err != nil {
		c.Reporter.Forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	c.Reporter.Saw(intent)
	if !intent.DeletionTimestamp.IsZero() {
		if err := c.abandon(ctx, intent); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, c.report(ctx, intent, resolve.Result{})
	}
	facts, err := resolve.Gather(ctx, c.Client, intent)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering what intent %s names: %w", req, err)
	}
	if done, err := c.leave(ctx, facts); done || err != nil {
		return reconcile.Result{}, err
	}
	if done, err := c.ensureFinalizer(ctx, intent, facts.Claim); done || err != nil {
		return reconcile.Result{}, err
	}
	result := resolve.Intent(facts)
	again, err := c.selectNode(ctx, facts, &result)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, c.report(ctx, intent, result)
}
