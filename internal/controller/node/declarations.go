/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Declarations takes off the declarations of attachments that nothing on their node speaks of: those that have done
// their work and did not go with the entry, and those that never named anything.
type Declarations struct {
	// Client reads from the cache.
	Client client.Client
	Writer *nodestate.Writer
	Events events.EventRecorder
}

// Register adds the controller to the manager. Where nothing is declared it does nothing.
func (d *Declarations) Register(mgr manager.Manager) error {
	declares := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return declaresAny(o.(*volumesv1alpha1.NodeVolumeState))
	})
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("declarations").
		For(&volumesv1alpha1.NodeVolumeState{}, builder.WithPredicates(declares)).
		Watches(
			&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(d.ofAttachment), builder.WithPredicates(gone),
		).
		WithOptions(controller.Options{RateLimiter: backoff.Limiter()}).
		Complete(d)
}

// ofAttachment wakes the node of an attachment that is gone, where anything is declared. What is declared later is an
// event of its own.
func (d *Declarations) ofAttachment(ctx context.Context, o client.Object) []reconcile.Request {
	key := client.ObjectKey{Name: o.(*storagev1.VolumeAttachment).Spec.NodeName}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := d.Client.Get(ctx, key, nvs); err == nil && !declaresAny(nvs) || apierrors.IsNotFound(err) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func declaresAny(nvs *volumesv1alpha1.NodeVolumeState) bool {
	return len(handshake.NodeOf(nvs, "").Declared) > 0
}

// Reconcile one node.
func (d *Declarations) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := d.Client.Get(ctx, req.NamespacedName, nvs); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for _, declared := range handshake.NodeOf(nvs, "").Declared {
		if err := d.settle(ctx, nvs, declared.UID); err != nil {
			return reconcile.Result{}, fmt.Errorf("taking off the declaration of attachment %s: %w", declared.UID, err)
		}
	}
	return reconcile.Result{}, nil
}

// settle takes the declaration off unless an entry, a line or an attachment of the node names its UID.
func (d *Declarations) settle(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) error {
	attachments, err := index.AttachmentsOf(ctx, d.Client, nvs.Name)
	if err != nil {
		return err
	}
	for i := range attachments {
		if attachments[i].UID == uid {
			return nil
		}
	}
	if nodestate.Names(nvs, uid) {
		return nil
	}
	var taken bool
	_, err = d.Writer.Apply(ctx, nvs.Name,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			_, stands := handshake.NodeOf(nvs, "").Declares(uid)
			if taken = stands && !nodestate.Names(nvs, uid); !taken {
				return nil, nil
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) { nodestate.SettleDeclaration(nvs, uid) }, nil
		})
	if err == nil && taken {
		d.Events.Eventf(nvs, nil, corev1.EventTypeWarning, "UnknownAttachment", "Declare",
			"nothing on node %s names attachment %s, or does any more: its declaration as released was taken off", nvs.Name, uid)
	}
	return err
}
