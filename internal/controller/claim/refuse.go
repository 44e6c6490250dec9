/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// EventInUse is the reason of the event on a claim that is deleted while intents use it. Kubernetes' condition Unused
// counts pods only, so a program that cleans up may take the claim for unused.
const EventInUse = "InUseByIntents"

// listed intents of a note.
const listed = 3

// warn that intents use a claim that is being deleted.
func (c *Controller) warn(claim *corev1.PersistentVolumeClaim, intents []volumesv1alpha1.VolumeAttachmentIntent) {
	if claim.DeletionTimestamp.IsZero() || used(claim, intents) != inUse {
		return
	}
	var users []string
	for i := range intents {
		if used(claim, intents[i:i+1]) == inUse {
			users = append(users, fmt.Sprintf("%s on node %s", intents[i].Name, intents[i].Spec.NodeName))
		}
	}
	slices.Sort(users)
	names := strings.Join(users[:min(len(users), listed)], ", ")
	if more := len(users) - listed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	c.Events.Eventf(claim, nil, corev1.EventTypeWarning, EventInUse, "Delete", "%s", status.ShortenNote(
		"VolumeAttachmentIntents use the claim that is being deleted: "+names+
			". The claim and its data stay until these intents are deleted. The condition Unused counts pods only"))
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch

// refused reports whether the deletion of the claim is refused while intents use it.
func (c *Controller) refused(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if asks(claim) {
		return true, nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Client.Get(ctx, client.ObjectKey{Name: claim.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading namespace %s: %w", claim.Namespace, err)
	}
	return asks(namespace), nil
}

// asks reports whether a claim or a namespace has the label.
func asks(o client.Object) bool { return o.GetLabels()[volumesv1alpha1.RefuseDeletionLabel] == "true" }

func marked(claim *corev1.PersistentVolumeClaim) bool {
	_, has := claim.Annotations[volumesv1alpha1.InUseAnnotation]
	return has
}

// refusalChanged: the label of a namespace. Claims that are there at the start are reconciled anyway.
var refusalChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return asks(e.ObjectOld) != asks(e.ObjectNew) },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// ofNamespace are the claims of a namespace.
func (c *Controller) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.Client.List(ctx, claims, client.InNamespace(o.GetName())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing claims", "namespace", o.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(claims.Items))
	for i := range claims.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
	}
	return requests
}
