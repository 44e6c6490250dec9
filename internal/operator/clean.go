/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
)

const policyGroup = "admissionregistration.k8s.io"

// untilLast are the policies that stay until everything else is gone.
var untilLast = []string{"hawser-removal", "hawser-namespace", "hawser-draining", "hawser-draining-pods"}

// clean removes everything that Hawser ever wrote. Nothing is in use, and neither manager nor agents run. The policies
// go first: they let only the manager remove holds and locks. Each step may run again.
func (r remover) clean(ctx context.Context, vm *volumesv1alpha1.VolumeManager) error {
	// The error of a step that failed before stays in the condition: each write of the status leads here at once, without
	// the backoff.
	if removedReason(vm) != volumesv1alpha1.ReasonCleaningUp {
		if err := r.reportRemoval(ctx, vm, notRemoved(volumesv1alpha1.ReasonCleaningUp,
			"nothing is in use; removing what Hawser wrote")); err != nil {
			return err
		}
	}
	t := traces{client: r.Client, live: r.Live, namespace: r.Namespace, serves: r.serves}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"the admission policies", r.deletePolicies},
		{"the holds on attachments", t.releaseAttachments},
		{"the node states", t.deleteStates},
		{"the locks", t.deleteLocks},
		{"the finalizers of claims", t.releaseClaims},
		{"the accounts of nodes", t.deleteAccounts},
		{"the annotations and labels of Nodes", t.releaseNodes},
		{"the taint of fenced Nodes", r.untaintNodes},
		{"the Leases", t.deleteLeases},
		{"the installation", r.deleteInstallation},
		{"the marks", r.unmark},
	} {
		if err := step.do(ctx); err != nil {
			return r.fails(ctx, vm, volumesv1alpha1.ReasonCleaningUp, fmt.Errorf("removing %s: %w", step.what, err))
		}
	}
	late, err := t.lateIntent(ctx)
	if err != nil {
		return err
	}
	if late != "" {
		// Its event leads here again, and then the cache has it.
		return r.reportRemoval(ctx, vm, notRemoved(volumesv1alpha1.ReasonCleaningUp,
			"intent %s was created meanwhile: Hawser is installed again to release it", late))
	}
	return r.finish(ctx, vm)
}

// finish lets the VolumeManager go.
func (r remover) finish(ctx context.Context, vm *volumesv1alpha1.VolumeManager) error {
	clear(r.applied)
	r.Recorder.Eventf(vm, nil, corev1.EventTypeNormal, volumesv1alpha1.ConditionRemoved, "Remove",
		"everything that Hawser wrote is removed, except for the operator and the kinds")
	before := vm.DeepCopy()
	controllerutil.RemoveFinalizer(vm, volumesv1alpha1.RemovalFinalizer)
	delete(vm.Labels, volumesv1alpha1.InUseLabel)
	err := r.Client.Patch(ctx, vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of the VolumeManager: %w", err)
	}
	return nil
}

// deletePolicies deletes bindings before their policies.
func (r remover) deletePolicies(ctx context.Context) error {
	for _, binding := range []bool{true, false} {
		for _, kind := range r.Kinds.watched {
			if kind.Group != policyGroup || strings.HasSuffix(kind.Kind, "Binding") != binding {
				continue
			}
			if err := r.deleteOwn(ctx, kind, untilLast...); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteInstallation deletes what was applied. Of the kinds that the operator does not watch it applied only a Secret,
// and the Namespace with its quota, which is the operator's home.
func (r remover) deleteInstallation(ctx context.Context) error {
	kinds := slices.Clone(r.prunable())
	// The policies that are left go last.
	slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int {
		switch {
		case a.Group == policyGroup && b.Group != policyGroup:
			return 1
		case a.Group != policyGroup && b.Group == policyGroup:
			return -1
		}
		return 0
	})
	if err := r.deleteToken(ctx); err != nil {
		return err
	}
	if err := r.deleteRights(ctx); err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := r.deleteOwn(ctx, kind); err != nil {
			return err
		}
	}
	return r.deleteRefusals(ctx)
}

// deleteRights deletes what an installation without the operator had, and no VolumeManager has asked for.
func (r remover) deleteRights(ctx context.Context) error {
	objects, err := r.unwantedRights(ctx, nil)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := r.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// deleteRefusals deletes what this removal applied, perhaps a moment ago: the cache may not have it yet.
func (r remover) deleteRefusals(ctx context.Context) error {
	policies, err := render.Refusals(r.Namespace)
	if err != nil {
		return err
	}
	for _, policy := range slices.Backward(policies) {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, policy)); err != nil {
			return fmt.Errorf("deleting %s: %w", identity(policy), err)
		}
		delete(r.applied, identity(policy))
	}
	return nil
}

// deleteOwn deletes the objects of a kind that the operator applied.
func (r remover) deleteOwn(ctx context.Context, kind schema.GroupVersionKind, except ...string) error {
	objects, err := r.ours(ctx, kind)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if slices.Contains(except, object.GetName()) {
			continue
		}
		if err := r.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}
