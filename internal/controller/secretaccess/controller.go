/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package secretaccess lets the agent of each node read the Secrets of the volumes that intents want on that node, and
// no others.
//
// For a node that needs a Secret there is a service account in Hawser's namespace; the node's agent requests a token of
// it. In each namespace with such Secrets there is a Role that names them, and a RoleBinding for that account. All have
// the account's name. They belong to the node state, and Kubernetes deletes them with it.
//
// The access is given as soon as an intent resolves to a volume with Secrets. That is before the volume is attached,
// and so before the agent needs it. Beyond a number of Secrets it is given once the volume is attached. It ends with
// the last intent that wants the volume staged. To undo that a driver gets no Secret, but the agent may read that of
// the stage until then: it stages again if the kubelet began to use the volume meanwhile.
package secretaccess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/claim"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/status"
)

const (
	// workers reconcile so many nodes at once.
	workers = 4
	// longestBackoff is longer than that of other controllers: a namespace that is not opened to the manager may stay
	// so.
	longestBackoff = time.Minute
	// strangerAgain is when a stranger's object is tried again. Its end is no event: the cache may not have it.
	strangerAgain = time.Minute
)

// Controller reconciles the access of one node at a time.
type Controller struct {
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Events events.EventRecorder
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](status.FirstBackoff, longestBackoff)
	return ctrl.NewControllerManagedBy(mgr).
		Named("secretaccess").
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, handler.EnqueueRequestsFromMapFunc(c.ofIntent),
			builder.WithPredicates(wantChanged)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(c.ofClaim),
			cached.SinceStart(claim.Changed)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(c.ofVolume), cached.SinceStart()).
		Watches(&volumesv1alpha1.NodeVolumeState{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(
			entriesChanged)).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(ofAccess)).
		Watches(&rbacv1.Role{}, handler.EnqueueRequestsFromMapFunc(ofAccess)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(ofAccess)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: limiter}).
		Complete(c)
}

// Reconcile the access of one node.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	account, err := install.NodeAccount(req.Name)
	if err != nil {
		return reconcile.Result{}, nil // its agent reports that
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, req.NamespacedName, nvs); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the state of node %s: %w", req.Name, err)
	}
	wanted, err := c.wanted(ctx, req.Name, nvs)
	if err != nil {
		return reconcile.Result{}, err
	}
	given, err := c.given(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	a := access{Controller: c, account: account, nvs: nvs, given: given}
	again, err := a.give(ctx, wanted)
	return reconcile.Result{RequeueAfter: again}, errors.Join(err, a.take(ctx, wanted))
}

// objects are what gives the access to one namespace. What does not exist, or is not the manager's, is nil.
type objects struct {
	role    *rbacv1.Role
	binding *rbacv1.RoleBinding
}

// given returns the access that the cache shows, by namespace.
func (c *Controller) given(ctx context.Context, node string) (map[string]objects, error) {
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{roles, bindings} {
		if err := c.Client.List(ctx, list, client.MatchingFields{index.Node: node}); err != nil {
			return nil, fmt.Errorf("listing the access to Secrets of node %s: %w", node, err)
		}
	}
	given := map[string]objects{}
	for i := range roles.Items {
		if install.IsNodeAccess(&roles.Items[i]) {
			given[roles.Items[i].Namespace] = objects{role: &roles.Items[i]}
		}
	}
	for i := range bindings.Items {
		if !install.IsNodeAccess(&bindings.Items[i]) {
			continue
		}
		o := given[bindings.Items[i].Namespace]
		o.binding = &bindings.Items[i]
		given[bindings.Items[i].Namespace] = o
	}
	return given, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
