/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
)

// Await watches one object until done returns true, and returns the object of that time. It calls done with nil for a
// missing object. If ctx ends first, the error shows the object as last seen.
func Await[T client.Object](ctx context.Context, s *System, list client.ObjectList, key client.ObjectKey,
	done func(T) bool) (T, error) {
	var last T
	var none T
	for {
		if err := s.Client.List(ctx, list, client.InNamespace(key.Namespace),
			client.MatchingFields{"metadata.name": key.Name}); err != nil {
			return last, fmt.Errorf("listing %s: %w", key, err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return last, fmt.Errorf("reading the list of %s: %w", key, err)
		}
		last = none
		if len(items) == 1 {
			last = items[0].(T)
		}
		if done(last) {
			return last, nil
		}
		last, err = awaitEvent(ctx, s, list, key, last, done)
		if err == nil {
			return last, nil
		}
		if ctx.Err() != nil {
			return last, fmt.Errorf("waiting for %T %s: %w; last seen: %s", last, key, ctx.Err(), describe(last))
		}
	}
}

// awaitEvent returns nil once done is true. It returns an error if the watch ended before.
func awaitEvent[T client.Object](ctx context.Context, s *System, list client.ObjectList, key client.ObjectKey, last T,
	done func(T) bool) (T, error) {
	w,
		err := s.Client.Watch(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return last, fmt.Errorf("watching %s: %w", key, err)
	}
	defer w.Stop()
	var none T
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified:
			last = event.Object.(T)
		case watch.Deleted:
			last = none
		case watch.Bookmark:
			continue
		case watch.Error:
			return last, fmt.Errorf("watching %s: %v", key, event.Object)
		}
		if done(last) {
			return last, nil
		}
	}
	return last, fmt.Errorf("watching %s: the watch ended", key)
}

func describe(object client.Object) string {
	if v := reflect.ValueOf(object); !v.IsValid() || v.IsNil() {
		return "not there"
	}
	switch o := object.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return fmt.Sprintf("%+v", o.Status)
	case *volumesv1alpha1.NodeVolumeState:
		return fmt.Sprintf("%+v %+v", o.Spec, o.Status)
	}
	return fmt.Sprintf("%+v", object)
}

// AwaitIntent waits until done is true of an intent; nil means that it does not exist.
func (s *System) AwaitIntent(ctx context.Context, namespace, name string,
	done func(*volumesv1alpha1.VolumeAttachmentIntent) bool) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	return Await(ctx, s, &volumesv1alpha1.VolumeAttachmentIntentList{},
		client.ObjectKey{Namespace: namespace, Name: name}, done)
}

// AwaitReady waits until an intent is Ready for its present generation.
func (s *System) AwaitReady(ctx context.Context, namespace,
	name string) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	return s.AwaitIntent(ctx, namespace, name, Ready)
}

// AwaitGone waits until an intent is gone.
func (s *System) AwaitGone(ctx context.Context, namespace, name string) error {
	_, err := s.AwaitIntent(ctx, namespace, name,
		func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool { return intent == nil })
	return err
}

// AwaitNode waits until done is true of a node's state.
func (s *System) AwaitNode(ctx context.Context, node string,
	done func(*volumesv1alpha1.NodeVolumeState) bool) (*volumesv1alpha1.NodeVolumeState, error) {
	return Await(ctx, s, &volumesv1alpha1.NodeVolumeStateList{}, client.ObjectKey{Name: node}, done)
}

// AwaitAttachmentGone waits until a VolumeAttachment is gone.
func (s *System) AwaitAttachmentGone(ctx context.Context, name string) error {
	_, err := Await(ctx, s, &storagev1.VolumeAttachmentList{}, client.ObjectKey{Name: name},
		func(a *storagev1.VolumeAttachment) bool { return a == nil })
	return err
}

// AwaitClaim waits until done is true of a claim.
func (s *System) AwaitClaim(ctx context.Context, namespace, name string,
	done func(*corev1.PersistentVolumeClaim) bool) (*corev1.PersistentVolumeClaim, error) {
	return Await(ctx, s, &corev1.PersistentVolumeClaimList{}, client.ObjectKey{Namespace: namespace, Name: name}, done)
}

// AwaitVolumeGone waits until a PersistentVolume is gone.
func (s *System) AwaitVolumeGone(ctx context.Context, name string) error {
	_, err := Await(ctx, s, &corev1.PersistentVolumeList{}, client.ObjectKey{Name: name},
		func(pv *corev1.PersistentVolume) bool { return pv == nil })
	return err
}

// Ready reports whether an intent is Ready for its present generation.
func Ready(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent != nil && intent.Status.ObservedGeneration == intent.Generation &&
		meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
}

// HasReason reports whether a condition of an intent has that reason.
func HasReason(conditionType, reason string) func(*volumesv1alpha1.VolumeAttachmentIntent) bool {
	return func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		if intent == nil {
			return false
		}
		c := meta.FindStatusCondition(intent.Status.Conditions, conditionType)
		return c != nil && c.Reason == reason
	}
}

// AgentSince is when the agent of a node acquired its Lease. A different time means a different process.
func (s *System) AgentSince(ctx context.Context, node string) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	if err := s.Client.Get(ctx, agentLease(node), lease); err != nil {
		return time.Time{}, fmt.Errorf("reading the lease of the agent: %w", err)
	}
	return lease.Spec.AcquireTime.Time, nil
}

// AwaitAgent waits until a node's agent has acquired its Lease after since.
func (s *System) AwaitAgent(ctx context.Context, node string, since time.Time) error {
	_, err := Await(ctx, s, &coordinationv1.LeaseList{}, agentLease(node), func(lease *coordinationv1.Lease) bool {
		return lease != nil && lease.Spec.AcquireTime != nil && lease.Spec.AcquireTime.After(since)
	})
	return err
}

func agentLease(node string) client.ObjectKey {
	return client.ObjectKey{Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + node}
}

// AwaitEvent waits for an event of that reason about an object of that name.
func (s *System) AwaitEvent(ctx context.Context, namespace, name, reason string) error {
	return s.awaitEvent(ctx, namespace, name, reason, func(*eventsv1.Event) bool { return true })
}

// AwaitEventWith waits for an event of that reason whose note contains the text.
func (s *System) AwaitEventWith(ctx context.Context, namespace, name, reason, text string) error {
	return s.awaitEvent(ctx, namespace, name, reason, func(e *eventsv1.Event) bool {
		return strings.Contains(e.Note, text)
	})
}

// AwaitRepeatedEvent waits until such an event was repeated.
func (s *System) AwaitRepeatedEvent(ctx context.Context, namespace, name, reason string) error {
	return s.awaitEvent(ctx, namespace, name, reason, func(e *eventsv1.Event) bool { return e.Series != nil })
}

func (s *System) awaitEvent(
	ctx context.Context, namespace, name, reason string, accepts func(*eventsv1.Event) bool,
) error {
	w, err := s.Client.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(namespace),
		client.MatchingFields{"regarding.name": name, "reason": reason})
	if err != nil {
		return fmt.Errorf("watching events: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for event %s about %s: %w", reason, name, ctx.Err())
		case event, open := <-w.ResultChan():
			if !open {
				return fmt.Errorf("waiting for event %s about %s: the watch ended", reason, name)
			}
			e, is := event.Object.(*eventsv1.Event)
			if is && (event.Type == watch.Added || event.Type == watch.Modified) && accepts(e) {
				return nil
			}
		}
	}
}
