/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// until waits, by a watch on the object's kind, until the object satisfies ok; o is nil-valued (UID empty) while it
// does not exist.
func until[T client.Object](t *testing.T, w *world, o T, what string, ok func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := client.ObjectKeyFromObject(o)
	list := listFor(o)
	for {
		watcher, err := w.client.Watch(ctx, list, client.InNamespace(key.Namespace),
			client.MatchingFields{"metadata.name": key.Name})
		if err != nil {
			t.Fatalf("waiting until %s: watching: %v", what, err)
		}
		for {
			err := w.client.Get(ctx, key, o)
			if apierrors.IsNotFound(err) {
				o.SetUID("")
				o.SetDeletionTimestamp(nil)
			} else if err != nil {
				watcher.Stop()
				t.Fatalf("waiting until %s: %v; last seen: %+v", what, err, o)
			}
			if ok(o) {
				watcher.Stop()
				return o
			}
			if _, open := <-watcher.ResultChan(); !open {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%T %s: within %s it did not come about that %s; last seen: %s", o, key, patience, what, dump(o))
		}
	}
}

func listFor(o client.Object) client.ObjectList {
	switch o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return &volumesv1alpha1.VolumeAttachmentIntentList{}
	case *volumesv1alpha1.VolumeAttachmentIntentSet:
		return &volumesv1alpha1.VolumeAttachmentIntentSetList{}
	case *volumesv1alpha1.NodeVolumeState:
		return &volumesv1alpha1.NodeVolumeStateList{}
	case *storagev1.VolumeAttachment:
		return &storagev1.VolumeAttachmentList{}
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaimList{}
	case *coordinationv1.Lease:
		return &coordinationv1.LeaseList{}
	case *corev1.ConfigMap:
		return &corev1.ConfigMapList{}
	case *corev1.Pod:
		return &corev1.PodList{}
	case *corev1.Node:
		return &corev1.NodeList{}
	}
	panic(fmt.Sprintf("no list for %T", o))
}

func exists[T client.Object](o T) bool { return o.GetUID() != "" }

// gone waits until the object does not exist.
func gone[T client.Object](t *testing.T, w *world, o T) {
	t.Helper()
	until(t, w, o, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(o T) bool { return !exists(o) })
}

// reason waits until a condition has this status and reason, and returns its message.
func (w *world) reason(
	t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, value metav1.ConditionStatus,
	reason string,
) string {
	t.Helper()
	var found *metav1.Condition
	until(t, w, intent, fmt.Sprintf("intent %s has %s=%s, %s", intent.Name, conditionType, value, reason),
		func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			found = meta.FindStatusCondition(i.Status.Conditions, conditionType)
			return exists(i) && found != nil && found.Status == value && found.Reason == reason
		})
	if value != metav1.ConditionTrue {
		w.explained(t, intent, conditionType, reason)
	}
	return found.Message
}

func (w *world) attached(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionTrue, volumesv1alpha1.ReasonAttached)
}

// awaitAll waits, by a watch, until all objects of a kind are as they should be.
func (w *world) awaitAll(ctx context.Context, list client.ObjectList, ok func([]client.Object) bool) error {
	watcher, err := w.client.Watch(ctx, list)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	if w.isSo(ctx, list, ok) {
		return nil
	}
	objects := map[types.UID]client.Object{}
	for e := range watcher.ResultChan() {
		o, isObject := e.Object.(client.Object)
		if !isObject {
			return fmt.Errorf("watching %T: %v", list, e.Object)
		}
		set(objects, o.GetUID(), o, e.Type == watch.Deleted)
		// The first events show what there is one by one; a state in between is no answer.
		if ok(slices.Collect(maps.Values(objects))) && w.isSo(ctx, list, ok) {
			return nil
		}
	}
	return fmt.Errorf("waiting for %T: %w: %s", list, ctx.Err(), dump(slices.Collect(maps.Values(objects))))
}

func (w *world) isSo(ctx context.Context, list client.ObjectList, ok func([]client.Object) bool) bool {
	if err := w.client.List(ctx, list); err != nil {
		return false
	}
	var objects []client.Object
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	}); err != nil {
		return false
	}
	return ok(objects)
}

func dump(o any) string {
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// awaitEvent waits for an event about the object of that name, and returns its note.
func (w *world) awaitEvent(t *testing.T, name, reason string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watcher, err := w.client.Watch(ctx, &eventsv1.EventList{},
		client.MatchingFields{"regarding.name": name, "reason": reason})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if event, ok := e.Object.(*eventsv1.Event); ok {
			return event.Note
		}
	}
	t.Fatalf("no event %s about %s within %s, want one", reason, name, patience)
	return ""
}
