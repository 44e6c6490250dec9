/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package nodehealth writes the condition AttachmentsHealthy of node states: what keeps the attachments of a node from
// being as they should, for as long as it lasts. It adds up what others have found:
//
//	attachment   an error or the silence of a driver's attacher: in the entries, and in the intents of the node
//	the kubelet  a driver that registers the node under another ID than the one it was attached by
//
// Nothing is written as long as nothing was ever wrong.
package nodehealth

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// Controller is keyed by node.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodehealth").
		For(&volumesv1alpha1.NodeVolumeState{}, builder.WithPredicates(stateChanged)).
		Watches(&volumesv1alpha1.NodeVolumeState{}, handler.EnqueueRequestsFromMapFunc(c.otherNodes),
			builder.WithPredicates(strangersChanged)).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment),
			builder.WithPredicates(attachmentChanged)).
		Watches(&storagev1.CSINode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(registeredAgain)).
		Watches(&volumesv1alpha1.VolumeAttachmentIntent{}, handler.EnqueueRequestsFromMapFunc(ofIntent),
			builder.WithPredicates(silenceChanged)).
		WithOptions(controller.Options{RateLimiter: backoff.Limiter()}).
		Complete(c)
}

// stateChanged: the entries, whether the agent is unreachable, or the condition of this controller.
var stateChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
	return before.Generation != after.Generation || unreachable(before) != unreachable(after) ||
		!equality.Semantic.DeepEqual(own(before), own(after))
}}

// strangersChanged: the node uses other volumes by what is not attached to it.
var strangersChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(strangers(e.ObjectOld.(*volumesv1alpha1.NodeVolumeState)),
			strangers(e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)))
	},
}

// strangers are the volumes that the node uses without an entry, as one does that was renamed.
func strangers(nvs *volumesv1alpha1.NodeVolumeState) []string {
	var names []string
	for i := range nvs.Status.Volumes {
		if v := &nvs.Status.Volumes[i]; v.InUse && handshake.AttachmentOf(nvs, v.VolumeName) == nil {
			names = append(names, v.VolumeName)
		}
	}
	return names
}

// otherNodes are those to which these volumes are attached. An event has both the state before and that after.
func (c *Controller) otherNodes(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range strangers(o.(*volumesv1alpha1.NodeVolumeState)) {
		states := &volumesv1alpha1.NodeVolumeStateList{}
		if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: name}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the nodes of a volume", "volume", name)
			continue
		}
		for i := range states.Items {
			if states.Items[i].Name != o.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&states.Items[i])})
			}
		}
	}
	return requests
}

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

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates/status,verbs=update

// Reconcile writes the condition of one node if it changed.
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
	report(nvs, Health(facts))
	if equality.Semantic.DeepEqual(cached.Status, nvs.Status) {
		return reconcile.Result{}, nil
	}
	if err := c.Client.Status().Update(ctx, nvs); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reporting what is wrong with the attachments of node %s: %w", nvs.Name, err)
	}
	return reconcile.Result{}, nil
}

// withdrawn is a condition that an earlier release wrote. Nothing would change it any more.
const withdrawn = "AttachmentsVerified"

// own is the condition of this controller, nil if it is absent.
func own(nvs *volumesv1alpha1.NodeVolumeState) *metav1.Condition {
	return meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionAttachmentsHealthy)
}

// report sets the condition. One that is absent stays so as long as nothing is wrong. It has no generation: that of a
// node state changes with each attachment.
func report(nvs *volumesv1alpha1.NodeVolumeState, p *Problem) {
	meta.RemoveStatusCondition(&nvs.Status.Conditions, withdrawn)
	c := metav1.Condition{Type: volumesv1alpha1.ConditionAttachmentsHealthy, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonAsExpected, Message: "nothing is wrong any more"}
	switch {
	case p != nil:
		c.Status, c.Reason = metav1.ConditionFalse, p.Reason
		c.Message = status.Shorten(p.Message, volumesv1alpha1.MaxConditionMessageLength)
	case own(nvs) == nil:
		return
	}
	meta.SetStatusCondition(&nvs.Status.Conditions, c)
}
