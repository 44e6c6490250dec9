/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Create creates the intent, or finds it: one that exists is returned if it has the same spec, defaults included, and
// the same controller in its owner references. Its labels and annotations may differ. It is never changed, and neither
// is the argument.
//
// Its errors are *Error with ReasonExists, with the fields that differ in the message, or with ReasonBeingDeleted; and
// those of the API server.
func (c *Client) Create(ctx context.Context,
	intent *volumesv1alpha1.VolumeAttachmentIntent) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	intents := c.Intents(intent.Namespace)
	for {
		created, err := intents.Create(ctx, intent, metav1.CreateOptions{})
		if err == nil {
			return created, nil
		}
		key := types.NamespacedName{Namespace: intent.Namespace, Name: intent.Name}
		if !apierrors.IsAlreadyExists(err) || intent.Name == "" {
			return nil, fmt.Errorf("creating VolumeAttachmentIntent %s: %w", key, err)
		}
		existing, err := intents.Get(ctx, intent.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it has been deleted since
			continue
		case err != nil:
			return nil, fmt.Errorf("reading VolumeAttachmentIntent %s, which exists: %w", key, err)
		}
		if conflict := compare(existing, intent); conflict != nil {
			conflict.Intent = key
			return nil, conflict
		}
		return existing, nil
	}
}

// CreateAndWait creates the intent, or finds it as Create does, and returns it once it is Ready, as WaitForReady does.
// If ctx ends, the intent stays.
//
// It waits for this intent, and not for another one of the same name: if it is deleted, the error is an *Error with
// ReasonDeleted. The other errors are those of Create and of WaitForReady.
func (c *Client) CreateAndWait(ctx context.Context,
	intent *volumesv1alpha1.VolumeAttachmentIntent) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	created, err := c.Create(ctx, intent)
	if err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: created.Namespace, Name: created.Name}
	return c.wait(ctx, key, func(now *volumesv1alpha1.VolumeAttachmentIntent) (bool, *Error) {
		if now == nil || now.UID != created.UID || !now.DeletionTimestamp.IsZero() {
			return true, &Error{Reason: ReasonDeleted, Message: "it was deleted before it was Ready"}
		}
		return judgeReady(now)
	})
}

// compare is why the intent that exists is not the one that is wanted; nil if it is.
func compare(existing, wanted *volumesv1alpha1.VolumeAttachmentIntent) *Error {
	if !existing.DeletionTimestamp.IsZero() {
		return &Error{Reason: ReasonBeingDeleted, Message: "the intent of this name is being deleted"}
	}
	differing := differences(existing.Spec, withDefaults(wanted.Spec))
	if controller(existing) != controller(wanted) {
		differing = append(differing, "metadata.ownerReferences")
	}
	if len(differing) == 0 {
		return nil
	}
	return &Error{Reason: ReasonExists, Message: "it exists and differs in " + strings.Join(differing, ", ")}
}

// controller is the UID of the object's controller, if it has one.
func controller(intent *volumesv1alpha1.VolumeAttachmentIntent) types.UID {
	if owner := metav1.GetControllerOfNoCopy(intent); owner != nil {
		return owner.UID
	}
	return ""
}

// withDefaults is the spec as the API server stores it.
func withDefaults(spec volumesv1alpha1.VolumeAttachmentIntentSpec) volumesv1alpha1.VolumeAttachmentIntentSpec {
	spec.DesiredState = cmp.Or(spec.DesiredState, volumesv1alpha1.DesiredPublished)
	spec.Publisher = cmp.Or(spec.Publisher, volumesv1alpha1.PublisherAgent)
	spec.OnNodeDeletion = cmp.Or(spec.OnNodeDeletion, volumesv1alpha1.OnNodeDeletionKeep)
	return spec
}

// differences are the names of the fields of a spec that differ. A list that is empty and one that is absent are the
// same.
func differences(a, b volumesv1alpha1.VolumeAttachmentIntentSpec) []string {
	var names []string
	one, other := reflect.ValueOf(a), reflect.ValueOf(b)
	for _, field := range reflect.VisibleFields(one.Type()) {
		x, y := one.FieldByIndex(field.Index), other.FieldByIndex(field.Index)
		if !equality.Semantic.DeepEqual(x.Interface(), y.Interface()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, "spec."+name)
		}
	}
	slices.Sort(names)
	return names
}
