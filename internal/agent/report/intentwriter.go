/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// IntentWriter is the only writer of the agent's part of the intents' status.
type IntentWriter struct {
	Live  client.Client
	Clock clock.Clock
	// Step is called before and after each write.
	Step func(name string)

	mu      sync.Mutex
	written map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent
}

// NewIntentWriter returns a writer that calls step before and after each write.
func NewIntentWriter(live client.Client, c clock.Clock, step func(string)) *IntentWriter {
	return &IntentWriter{Live: live, Clock: c, Step: step,
		written: map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent{}}
}

// Update brings the view into the intent's status. After a conflict the intent is read live; if it asks for
// something else than before, the watch brings it here again.
func (w *IntentWriter) Update(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent,
	s IntentReport) error {
	next := intent.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before := next.Status.DeepCopy()
		s.apply(next, metav1.NewMicroTime(w.Clock.Now()))
		if equality.Semantic.DeepEqual(before, &next.Status) {
			return nil
		}
		w.Step("before intent status")
		err := w.Live.Status().Update(ctx, next)
		w.Step("after intent status")
		if !apierrors.IsConflict(err) {
			return err
		}
		live := &volumesv1alpha1.VolumeAttachmentIntent{}
		if err := w.Live.Get(ctx, client.ObjectKeyFromObject(next), live); err != nil {
			return err
		}
		if live.UID != intent.UID || live.Generation != intent.Generation ||
			live.DeletionTimestamp.IsZero() != intent.DeletionTimestamp.IsZero() {
			next = nil
			return nil
		}
		next = live
		return err
	})
	if apierrors.IsNotFound(err) || next == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing status of intent %s: %w", client.ObjectKeyFromObject(intent), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[next.UID] = next
	return nil
}

// Newest is the intent as this process wrote it last, where the watch has not brought that yet.
func (w *IntentWriter) Newest(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	w.mu.Lock()
	defer w.mu.Unlock()
	if own, ok := w.written[i.UID]; ok {
		if newer(own.ResourceVersion, i.ResourceVersion) {
			return own.DeepCopy()
		}
		delete(w.written, i.UID)
	}
	return i
}

// Forget drops what was written of an intent that is gone.
func (w *IntentWriter) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.written, uid)
}
