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
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/condition"
)

// DefaultRecount is how long the number in the marks may be old. That something is in use at all is written at once.
const DefaultRecount = 10 * time.Second

// marked is the value of the mark.
func (u used) marked() string {
	if !u.known {
		return volumesv1alpha1.InUseUnknown
	}
	return strconv.Itoa(len(u.uses))
}

// protect writes what is in use into the marks. If the VolumeManager has none, nothing must be installed; that another
// object has none is a problem. No event shows that what refused the mark has ended, so it is tried again.
func (r *Reconciler) protect(ctx context.Context, vm *volumesv1alpha1.VolumeManager, u used,
) (time.Duration, []condition.Problem, error) {
	wait := r.recountIn(vm.Labels[volumesv1alpha1.InUseLabel], u.marked())
	if wait > 0 {
		return wait, nil, nil
	}
	if err := r.markManager(ctx, vm, u.marked()); err != nil {
		return 0, nil, err
	}
	if err := r.mark(ctx, u.marked()); err != nil {
		return r.Recount, []condition.Problem{{Reason: volumesv1alpha1.ReasonMarkFailed, Message: listed(err)}}, nil
	}
	return 0, nil, nil
}

// mark protects what is needed to release volumes against deletion.
func (r *Reconciler) mark(ctx context.Context, value string) error {
	objects, err := r.guarded(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, object := range objects {
		if object.Labels[volumesv1alpha1.InUseLabel] != value {
			failures = append(failures, r.setMark(ctx, object, value, nil))
		}
	}
	return errors.Join(failures...)
}

// recountIn is how long to wait before one number replaces another. A write for each volume would be many.
func (r *Reconciler) recountIn(have, want string) time.Duration {
	if have == want || have == "" || have == "0" || want == "0" || want == volumesv1alpha1.InUseUnknown {
		return 0
	}
	return r.counted.Add(r.Recount).Sub(r.Clock.Now())
}

// markManager also sets the finalizer. It leaves in vm what was written.
func (r *Reconciler) markManager(ctx context.Context, vm *volumesv1alpha1.VolumeManager, value string) error {
	before := vm.DeepCopy()
	if vm.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(vm, volumesv1alpha1.RemovalFinalizer)
	}
	if before.Labels[volumesv1alpha1.InUseLabel] == value && len(before.Finalizers) == len(vm.Finalizers) {
		return nil
	}
	metav1.SetMetaDataLabel(&vm.ObjectMeta, volumesv1alpha1.InUseLabel, value)
	err := r.Client.Patch(ctx, vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("marking the VolumeManager: %w", err)
	}
	r.counted = r.Clock.Now()
	return nil
}

// setMark writes the mark of one object, or removes it if the value is empty, and changes its annotations.
func (r *Reconciler) setMark(ctx context.Context, object *metav1.PartialObjectMetadata, value string,
	annotations map[string]any) error {
	label := map[string]any{volumesv1alpha1.InUseLabel: nil}
	if value != "" {
		label[volumesv1alpha1.InUseLabel] = value
	}
	metadata := map[string]any{"labels": label}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	err = r.Client.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking %s %s: %w", object.Kind, object.Name, err)
	}
	return nil
}

// unmark lets the objects go that are needed no more. The operator's Deployment remembers that.
func (r *Reconciler) unmark(ctx context.Context) error {
	objects, err := r.guarded(ctx)
	if err != nil {
		return err
	}
	for _, object := range objects {
		var annotations map[string]any
		if object.GroupVersionKind() == operatorDeployment {
			annotations = map[string]any{
				volumesv1alpha1.RemovedAnnotation: r.Clock.Now().UTC().Format(time.RFC3339)}
		}
		if object.Labels[volumesv1alpha1.InUseLabel] == "" && annotations == nil {
			continue
		}
		if err := r.setMark(ctx, object, "", annotations); err != nil {
			return err
		}
	}
	return nil
}
