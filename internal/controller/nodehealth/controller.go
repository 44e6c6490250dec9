/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package nodehealth writes the conditions AttachmentsHealthy and AttachmentsVerified of node states: what keeps the
// attachments of a node from being as they should, for as long as it lasts. It adds up what others have found:
//
//	attachment   an error or the silence of a driver's attacher: in the entries, and in the intents of the node
//	verify       what the drivers list, and drivers that cannot be asked
//	the kubelet  a driver that registers the node under another ID than the one it was attached by
//
// Nothing is written as long as nothing was ever wrong.
package nodehealth

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/hawser-io/hawser/internal/controller/verify"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

// Controller is keyed by node.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Findings of the verification; nil if there is none.
	Findings *verify.Findings
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("nodehealth").
		For(&volumesv1alpha1.NodeVolumeState{}, builder.WithPredicates(stateChanged)).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment),
			builder.WithPredicates(attachmentChanged)).
		Watches(&storagev1.CSINode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(registeredAgain)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, handler.EnqueueRequestsFromMapFunc(ofIntent),
			builder.WithPredicates(silenceChanged)).
		WithOptions(controller.Options{RateLimiter: backoff.Limiter()})
	if c.Findings != nil {
		b = b.WatchesRawSource(c.Findings.Listen(c.ofDriver))
	}
	return b.Complete(c)
}

// stateChanged: the entries, whether the agent is unreachable, or a condition of this controller.
var stateChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
	return before.Generation != after.Generation || unreachable(before) != unreachable(after) ||
		!equality.Semantic.DeepEqual(own(before), own(after))
}}

// attachmentChanged: the attacher has an error, or names the node otherwise. The rest is in the entries.
var attachmentChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*storagev1.VolumeAttachment), e.ObjectNew.(*storagev1.VolumeAttachment)
		return before.Annotations[volume.NodeIDAnnotation] != after.Annotations[volume.NodeIDAnnotation] ||
			volume.Refused(before) != volume.Refused(after) ||
			(before.Status.DetachError == nil) != (after.Status.DetachError == nil)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// registeredAgain: a driver registers the node, under whatever ID. The CSINode of a Node that is created again may have
// its drivers from the first.
var registeredAgain = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*storagev1.CSINode), e.ObjectNew.(*storagev1.CSINode)
		return !equality.Semantic.DeepEqual(before.Spec.Drivers, after.Spec.Drivers)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// silenceChanged: the attacher does not answer, or does so again.
var silenceChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return waitsForAttacher(e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntent)) !=
			waitsForAttacher(e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntent))
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		return waitsForAttacher(e.Object.(*volumesv1alpha1.VolumeAttachmentIntent))
	},
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.(*storagev1.VolumeAttachment).Spec.NodeName}}}
}

func ofIntent(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*volumesv1alpha1.VolumeAttachmentIntent).Spec.NodeName
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// ofDriver are the nodes with a volume of the driver, or with a finding about it.
func (c *Controller) ofDriver(ctx context.Context, driver string) []reconcile.Request {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "nodes of a driver not found", "driver", driver)
		return nil
	}
	found := c.Findings.All()[driver]
	var requests []reconcile.Request
	for i := range states.Items {
		nvs := &states.Items[i]
		marked := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionAttachmentsVerified) != nil
		if marked || len(found.Unexpected[nvs.Name]) > 0 || found.Failure != "" && drivers(nvs)[driver] {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(nvs)})
		}
	}
	return requests
}

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates/status,verbs=update

// Reconcile writes the conditions of one node if they changed.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cached := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, req.NamespacedName, cached); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	facts, err := c.gather(ctx, cached)
	if err != nil {
		return reconcile.Result{}, err
	}
	nvs := cached.DeepCopy()
	for t, problem := range map[string]*Problem{
		volumesv1alpha1.ConditionAttachmentsHealthy:  Health(facts),
		volumesv1alpha1.ConditionAttachmentsVerified: Verification(facts),
	} {
		set(nvs, t, problem)
	}
	if equality.Semantic.DeepEqual(own(cached), own(nvs)) {
		return reconcile.Result{}, nil
	}
	if err := c.Client.Status().Update(ctx, nvs); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reporting what is wrong with the attachments of node %s: %w", nvs.Name, err)
	}
	return reconcile.Result{}, nil
}

// set a condition. One that is absent stays so as long as nothing is wrong.
func set(nvs *volumesv1alpha1.NodeVolumeState, t string, p *Problem) {
	switch was := meta.FindStatusCondition(nvs.Status.Conditions, t); {
	case p == Keep, p == nil && was == nil:
		return
	case p == nil:
		p = &asExpected
	}
	c := p.condition(t)
	c.Message = status.Shorten(c.Message, volumesv1alpha1.MaxConditionMessageLength)
	meta.SetStatusCondition(&nvs.Status.Conditions, c)
}
