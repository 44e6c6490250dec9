/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/install"
)

// ofIntent requests the intent's node. Most volumes need no Secret; then nothing is reconciled.
func (c *Controller) ofIntent(ctx context.Context, o client.Object) []reconcile.Request {
	return c.nodes(ctx, *o.(*volumesv1alpha1.VolumeAttachmentIntent))
}

// ofClaim requests the nodes of the claim's intents.
func (c *Controller) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return c.ofIntents(ctx, index.ClaimKey(o.GetNamespace(), o.GetName()))
}

// ofVolume requests the nodes of the intents of the claim that the volume belongs to.
func (c *Controller) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	pv := o.(*corev1.PersistentVolume)
	if s := volume.SourceOf(pv); s == nil || pv.Spec.ClaimRef == nil || !ofSource(s).any() {
		return nil
	}
	return c.ofIntents(ctx, index.ClaimKey(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name))
}

func (c *Controller) ofIntents(ctx context.Context, claim string) []reconcile.Request {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{index.Claim: claim}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents", "claim", claim)
		return nil
	}
	return c.nodes(ctx, slices.DeleteFunc(intents.Items, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return !stages(&i) && !unstages(&i)
	})...)
}

// nodes requests the node of each intent that needs a Secret or may have needed one.
func (c *Controller) nodes(ctx context.Context, intents ...volumesv1alpha1.VolumeAttachmentIntent) []reconcile.Request {
	var requests []reconcile.Request
	for i := range intents {
		if c.concerns(ctx, &intents[i]) {
			request := reconcile.Request{NamespacedName: client.ObjectKey{Name: intents[i].Spec.NodeName}}
			requests = append(requests, request)
		}
	}
	return requests
}

// concerns reports whether the intent needs a Secret, or may have needed one: its node has an account then.
func (c *Controller) concerns(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, nvs)
	if client.IgnoreNotFound(err) != nil {
		return true
	}
	r, known, err := c.refsOf(ctx, intent, nvs)
	if err != nil || known {
		return err != nil || r.any()
	}
	account, err := install.NodeAccount(intent.Spec.NodeName)
	if err != nil {
		return false
	}
	err = c.Client.Get(ctx, client.ObjectKey{Namespace: install.Namespace(), Name: account}, &corev1.ServiceAccount{})
	return !apierrors.IsNotFound(err)
}

// ofAccess requests the node that an account, a Role or a RoleBinding is for.
func ofAccess(_ context.Context, o client.Object) []reconcile.Request {
	node := install.NodeOfAccount(o.GetName())
	if node == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: node}}}
}

// wantChanged lets through what changes which Secrets an intent needs. An intent that the agent does not stage needs
// none, such as those of pods: their events cost nothing.
var wantChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		i := e.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
		return staged(i) || unstages(i)
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntent),
			e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntent)
		return staged(before) != staged(after) || unstages(before) != unstages(after) ||
			staged(after) && (before.UID != after.UID ||
				before.Spec.DesiredState != after.Spec.DesiredState ||
				before.Status.UniqueVolumeName != after.Status.UniqueVolumeName)
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		i := e.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
		return stages(i) || unstages(i)
	},
}

// entriesChanged lets through that a node state is new, and a change of the entries if any of them names a Secret.
var entriesChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
		return before.UID != after.UID || before.Generation != after.Generation && (namesSecret(before) || namesSecret(after))
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func namesSecret(nvs *volumesv1alpha1.NodeVolumeState) bool {
	return slices.ContainsFunc(nvs.Spec.Attachments, func(e volumesv1alpha1.NodeAttachment) bool {
		return ofEntry(&e).any()
	})
}
