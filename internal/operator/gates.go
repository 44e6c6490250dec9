/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

// watchPods starts to watch the pods of all namespaces. Only a removal needs them.
func (r *Reconciler) watchPods() error {
	if r.podsWatched {
		return nil
	}
	concerned := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return concernsRemoval(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return concernsRemoval(e.ObjectOld) || concernsRemoval(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return concernsRemoval(e.Object) },
	}
	if err := r.controller.Watch(source.Kind[client.Object](r.guards, &corev1.Pod{}, enqueue, concerned)); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	r.podsWatched = true
	return nil
}

// concernsRemoval: the pod has an inline volume, or a gate.
func concernsRemoval(o client.Object) bool {
	pod := o.(*corev1.Pod)
	return len(usage.InlineVolumes(pod)) > 0 || isGated(pod)
}

func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, isGate)
}

func isGate(g corev1.PodSchedulingGate) bool { return g.Name == volumesv1alpha1.PlacementGate }

func (r *Reconciler) listPods(ctx context.Context) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.guards.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("listing the pods of all namespaces: %w", err)
	}
	return pods.Items, nil
}

// runningPods are the pods that may have inline volumes mounted.
func (r remover) runningPods(ctx context.Context) ([]string, error) {
	if err := r.watchPods(); err != nil {
		return nil, err
	}
	pods, err := r.listPods(ctx)
	return usage.Running(pods), err
}

// ungate deletes the policy that gates pods, and then lifts the gates: once the manager has ended, nothing else would.
func (r remover) ungate(ctx context.Context) error {
	if err := r.deleteGating(ctx); err != nil {
		return err
	}
	return r.liftGates(ctx)
}

// deleteGating deletes the binding before the policy.
func (r remover) deleteGating(ctx context.Context) error {
	if !r.Kinds.mutating {
		return nil
	}
	for _, kind := range []struct{ kind, name string }{
		{render.MutatingPolicyBinding.Kind, render.GatingPolicy}, {render.MutatingPolicy.Kind, render.GatingPolicy},
	} {
		objects, err := r.ours(ctx, render.MutatingPolicy.GroupVersion().WithKind(kind.kind))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetName() != kind.name {
				continue
			}
			if err := r.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// liftGates lifts the gate of each pod that has it. An API server may go on for a moment to apply a policy that was
// deleted. A pod that is gated in this moment leads here again by its event.
func (r *Reconciler) liftGates(ctx context.Context) error {
	pods, err := r.listPods(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for i := range pods {
		if pod := &pods[i]; isGated(pod) {
			failures = append(failures, r.liftGate(ctx, pod))
		}
	}
	return errors.Join(failures...)
}

func (r *Reconciler) liftGate(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
			"labels": map[string]any{volumesv1alpha1.GatedLabel: nil}},
		"spec": map[string]any{"schedulingGates": slices.DeleteFunc(slices.Clone(pod.Spec.SchedulingGates), isGate)},
	})
	if err != nil {
		return err
	}
	err = r.Client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // The event of the newer version leads here again.
	}
	if err != nil {
		return fmt.Errorf("lifting the gate of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
