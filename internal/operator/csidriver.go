/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// csiDriver is the kind of the object that lets pods have inline volumes of Hawser.
var csiDriver = storagev1.SchemeGroupVersion.WithKind("CSIDriver")

// profileLabel is what OpenShift reads: the Pod Security profile that a namespace needs to have such volumes.
const profileLabel = "security.openshift.io/csi-ephemeral-volume-profile"

// immutableFields of a CSIDriver. The API server takes no change of them.
var immutableFields = [][]string{{"spec", "attachRequired"}, {"spec", "volumeLifecycleModes"}}

// adapt returns the object as it is to be applied over the one that is there. A CSIDriver keeps the profile that an
// administrator has set. One whose immutable fields differ is deleted, to be created again: pods that run do not need
// it, and the kubelet retries for others.
func (r *Reconciler) adapt(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if want.GroupVersionKind() != csiDriver {
		return want, nil
	}
	have := newObject(csiDriver)
	err := r.Cache.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) { // the cache has what the operator has applied before
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(want), have)
	}
	if apierrors.IsNotFound(err) {
		return want, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the CSIDriver: %w", err)
	}
	adapted := withProfileOf(want, have)
	if sameImmutable(adapted, have) {
		return adapted, nil
	}
	uid := have.GetUID()
	err = r.Client.Delete(ctx, have, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // the cache may show one that is gone
		return nil, fmt.Errorf("deleting the CSIDriver, whose fields are immutable: %w", err)
	}
	return adapted, nil
}

func withProfileOf(want, have *unstructured.Unstructured) *unstructured.Unstructured {
	profile := have.GetLabels()[profileLabel]
	if profile == "" {
		return want
	}
	adapted := want.DeepCopy()
	labels := adapted.GetLabels()
	labels[profileLabel] = profile
	adapted.SetLabels(labels)
	return adapted
}

func sameImmutable(want, have *unstructured.Unstructured) bool {
	return !slices.ContainsFunc(immutableFields, func(path []string) bool {
		w, _, errW := unstructured.NestedFieldNoCopy(want.Object, path...)
		h, _, errH := unstructured.NestedFieldNoCopy(have.Object, path...)
		return errW != nil || errH != nil || !equality.Semantic.DeepEqual(w, h)
	})
}
