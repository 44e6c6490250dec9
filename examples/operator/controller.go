/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// intent is the kind of Hawser that this operator makes.
type intent = volumesv1alpha1.VolumeAttachmentIntent

type reconciler struct{ client.Client }

// Reconcile makes an intent for each node of the Dataset, deletes the others, and reports what Hawser reports. It waits
// for nothing: a change of an intent wakes it.
//
// It does nothing for a Dataset that is deleted. The garbage collector then deletes the intents, and Hawser releases
// their volumes.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	dataset := &Dataset{}
	if err := r.Get(ctx, request.NamespacedName, dataset); err != nil || !dataset.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owned, err := r.owned(ctx, dataset)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.create(ctx, dataset, owned); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.release(ctx, dataset, owned); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, dataset, owned)
}

// owned are the intents of the Dataset. Others in its namespace belong to others, whatever their names.
func (r *reconciler) owned(ctx context.Context, dataset *Dataset) ([]intent, error) {
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := r.List(ctx, list, client.InNamespace(dataset.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the intents of %s: %w", dataset.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(i intent) bool { return !metav1.IsControlledBy(&i, dataset) }), nil
}

// create creates the intents that are missing. One that exists under the name is an error: it belongs to another owner,
// or the cache does not have it yet. Both are tried again with backoff.
func (r *reconciler) create(ctx context.Context, dataset *Dataset, owned []intent) error {
	for _, node := range dataset.Spec.Nodes {
		if slices.ContainsFunc(owned, func(i intent) bool { return i.Spec.NodeName == node }) {
			continue
		}
		wanted := &intent{
			ObjectMeta: metav1.ObjectMeta{Namespace: dataset.Namespace, Name: dataset.Name + "-" + node},
			Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
				NodeName: node, ReadOnly: true,
				Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{
					ClaimName: dataset.Spec.ClaimName}},
				// An intent goes with its Node. Without that, a drain waits for this operator.
				OnNodeDeletion: volumesv1alpha1.OnNodeDeletionRelease,
			},
		}
		if err := controllerutil.SetControllerReference(dataset, wanted, r.Scheme()); err != nil {
			return err
		}
		if err := r.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating intent %s: %w", wanted.Name, err)
		}
	}
	return nil
}

// release deletes the intents of nodes that the Dataset does not name. An intent is gone once its node has released the
// volume.
func (r *reconciler) release(ctx context.Context, dataset *Dataset, owned []intent) error {
	for i := range owned {
		if slices.Contains(dataset.Spec.Nodes, owned[i].Spec.NodeName) || !owned[i].DeletionTimestamp.IsZero() {
			continue
		}
		err := r.Delete(ctx, &owned[i], client.Preconditions{UID: &owned[i].UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting intent %s: %w", owned[i].Name, err)
		}
	}
	return nil
}

// report writes the status, if it has changed. Nothing else writes it, so that a patch needs no version: after a write
// from a cache that lagged, the event of that write corrects it.
func (r *reconciler) report(ctx context.Context, dataset *Dataset, owned []intent) error {
	before := dataset.DeepCopyObject().(*Dataset)
	dataset.Status.ObservedGeneration, dataset.Status.Nodes = dataset.Generation, nil
	for i := range owned {
		dataset.Status.Nodes = append(dataset.Status.Nodes, stateOf(&owned[i]))
	}
	slices.SortFunc(dataset.Status.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	meta.SetStatusCondition(&dataset.Status.Conditions, ready(dataset))
	if equality.Semantic.DeepEqual(before.Status, dataset.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, dataset, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status of %s: %w", dataset.Name, err)
	}
	return nil
}

// stateOf is what the conditions of an intent mean for its node. They count for the present spec only.
func stateOf(i *intent) NodeStatus {
	state := NodeStatus{Name: i.Spec.NodeName}
	stalled := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionStalled)
	ready := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
	switch {
	case !i.DeletionTimestamp.IsZero():
		state.Reason = volumesv1alpha1.ReasonReleasing
	case i.Status.ObservedGeneration != i.Generation || ready == nil:
		state.Reason = volumesv1alpha1.ReasonProgressing
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		state.Reason = stalled.Reason
	case ready.Status != metav1.ConditionTrue:
		state.Reason = ready.Reason
	default:
		state.Path = i.Status.Path
	}
	return state
}

// ready is the condition Ready of a Dataset: the volume is on each node that it names.
func ready(dataset *Dataset) metav1.Condition {
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "OnAllNodes",
		Message: "the volume can be used on each node", ObservedGeneration: dataset.Generation}
	for _, node := range dataset.Spec.Nodes {
		i := slices.IndexFunc(dataset.Status.Nodes, func(s NodeStatus) bool { return s.Name == node })
		if i >= 0 && dataset.Status.Nodes[i].Reason == "" {
			continue
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing
		condition.Message = "waiting for node " + node
		if i >= 0 {
			condition.Reason = dataset.Status.Nodes[i].Reason
		}
		break
	}
	return condition
}
