/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package node keeps one NodeVolumeState for each Node and watches over its agent: the state is
// created with the Node, outlives it while an attachment is left, and says so when the agent is not heard any more.
package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Workers reconcile so many nodes at once.
const Workers = 16

// Controller reconciles nodes.
type Controller struct {
	Client  client.Client
	Tracker *liveness.Tracker
	Writer  *nodestate.Writer
	// Observations writes what was observed of the Node.
	Observations *nodestate.Writer
	// Reader reads live.
	Reader client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Replace: every attachment is Hawser's to detach, held or not.
	Replace bool
	Fences  Fences
	// Lifts of fences that cut access.
	Lifts *fences.Lifts
	// ManageTaint: the out-of-service taint is set on a Node whose machine is fenced.
	ManageTaint bool
	// ForgetAfter is the administrator's policy: what was forced away from a Node that has been gone for so long is
	// declared released. Zero is never.
	ForgetAfter time.Duration

	absences    absences
	unconfirmed unconfirmed
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	comingAndGoing := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(comingAndGoing)).
		Watches(&corev1.Node{}, handler.Funcs{CreateFunc: c.registered, UpdateFunc: c.tainted, DeleteFunc: c.unregistered}).
		Watches(&volumesv1alpha1.NodeVolumeState{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(stateChanged)).
		Watches(
			&volumesv1alpha1.NodeVolumeState{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(
				predicate.Or(c.cutsChanged(), c.taintMayGo()),
			),
		).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(c.ofAttachment), builder.WithPredicates(
			comingAndGoing,
		)).
		Watches(&volumesv1alpha1.NodeVolumeState{}, handler.Funcs{UpdateFunc: c.used}).
		WatchesRawSource(c.Tracker.Listen(c.heard)).
		WatchesRawSource(c.Fences.Listen(c.fenced)).
		WithOptions(controller.Options{MaxConcurrentReconciles: Workers, RateLimiter: backoff.Limiter()}).
		Complete(c)
}

// stateChanged lets through what this controller reads: the agent's reachability, deletion, and how much is left.
var stateChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
		return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			handshake.Silent(before) != handshake.Silent(after) || left(before) != left(after) ||
			before.Status.Protocol.Session != after.Status.Protocol.Session || evidenceChanged(before, after)
	},
}

// cutsChanged lets through what comes to be kept from the node by a fence alone.
func (c *Controller) cutsChanged() predicate.Predicate {
	none := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	none.UpdateFunc = func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
		return before.Generation != after.Generation && c.Lifts.Concerned(after)
	}
	return none
}

// registered hears of each Node that comes, also of one that is gone again when its turn comes.
func (c *Controller) registered(
	_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	c.absences.registered(e.Object.GetName())
}

// ofAttachment wakes the node of an attachment where there is no such Node, for only then does it matter what is left
// on it, or where its agent is overdue. That a Node goes, and that an agent is overdue, wakes it by itself.
func (c *Controller) ofAttachment(ctx context.Context, o client.Object) []reconcile.Request {
	name := o.(*storagev1.VolumeAttachment).Spec.NodeName
	if node, err := c.node(ctx, name); err == nil && node != nil && c.Tracker.Silence(name) < 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// Reconcile one node.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, err := c.node(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err = c.Client.Get(ctx, req.NamespacedName, nvs)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, c.create(ctx, req.Name, node != nil)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading the state of node %s: %w", req.Name, err)
	}
	if node == nil {
		c.unconfirmed.drop(req.Name)
	}
	var wait time.Duration
	for _, step := range c.steps(node) {
		again, err := step(ctx, nvs)
		if err != nil {
			return reconcile.Result{}, err
		}
		wait = sooner(wait, again)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

type step = func(context.Context, *volumesv1alpha1.NodeVolumeState) (time.Duration, error)

// steps of a pass; each returns when to reconcile again.
func (c *Controller) steps(node *corev1.Node) []step {
	switch {
	case node == nil:
		return []step{c.remove, c.tellDeletion, c.recordAbsence, c.forgetGone, c.watchOver, c.showEvidence, c.noteLifts}
	case !node.DeletionTimestamp.IsZero():
		return []step{c.recordTaint, c.recordFences, c.forgetAbsence, c.giveWay, c.confirm, c.forgetGone, c.watchOver,
			c.showEvidence, c.noteLifts}
	}
	return []step{c.recordTaint, c.recordFences, c.forgetAbsence, c.returned, c.giveWay, c.confirm, c.watchOver,
		c.showEvidence, c.manageTaint, c.noteLifts}
}

// sooner of two waits.
func sooner(a, b time.Duration) time.Duration {
	if a == never || b != never && b < a {
		return b
	}
	return a
}

// node returns nil if there is no such Node.
func (c *Controller) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// remains is what is attached to a node or in use on it, except for what an administrator has declared released.
type remains int

const (
	nothing remains = iota
	// unnamed: uses by the kubelet of attachments that were not ours. They cannot be declared released.
	unnamed
	something
)

func left(nvs *volumesv1alpha1.NodeVolumeState) remains {
	for i := range nvs.Spec.Attachments {
		n := handshake.NodeOf(nvs, nvs.Spec.Attachments[i].VolumeName)
		if !n.DeclaredAway() || n.InUse() {
			return something
		}
	}
	most := nothing
	for i := range nvs.Status.Volumes {
		switch v := &nvs.Status.Volumes[i]; {
		case !handshake.NodeOf(nvs, v.VolumeName).InUse():
		case v.AttachmentUID == "":
			most = unnamed
		default:
			return something
		}
	}
	return most
}

var errNotIdle = errors.New("the node has volumes again")

// never is no timer at all.
const never time.Duration = 0

// goneAfter is how long the agent of a Node that does not exist must have been silent before what it said of
// attachments that were not ours counts no more.
const goneAfter = 5 * time.Minute
