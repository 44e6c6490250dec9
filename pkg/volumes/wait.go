/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// StalledError is the error of an intent that no retry can make Ready: its author or an administrator has to change
// something first.
type StalledError struct {
	// Intent is the namespace and the name of the intent.
	Intent client.ObjectKey
	// Reason and Message of the intent's condition Stalled.
	Reason, Message string
}

// Error names the intent, the reason and the message.
func (e *StalledError) Error() string {
	return fmt.Sprintf("VolumeAttachmentIntent %s is stalled: %s: %s", e.Intent, e.Reason, e.Message)
}

// NotReadyError is the error of a wait that its context ended. errors.Is finds context.DeadlineExceeded or
// context.Canceled in it.
type NotReadyError struct {
	// Intent is the namespace and the name of the intent.
	Intent client.ObjectKey
	// Reason and Message of the intent's condition Ready when it was seen last. Reason is ReasonNotFound if the intent
	// does not exist, and ReasonNotObserved if no status has been written for its present spec.
	Reason, Message string

	cause error
}

// Reasons of a NotReadyError that are not those of a condition.
const (
	ReasonNotFound    = "NotFound"
	ReasonNotObserved = "NotObserved"
	// ReasonUnknown: the API server could not be read.
	ReasonUnknown = "Unknown"
)

// Error names the intent, the reason, the message and what ended the wait.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("VolumeAttachmentIntent %s is not Ready: %s: %s: %v", e.Intent, e.Reason, e.Message, e.cause)
}

// Unwrap returns what ended the wait.
func (e *NotReadyError) Unwrap() error { return e.cause }

// WaitForReady blocks until the intent has reached its desired state for its present spec, and returns it. For an
// intent with the desired state Published, status.path of the result is where its volume is on the node.
//
// It watches and does not poll. The intent may not exist yet: the wait continues until it does. It also continues if
// the intent is deleted, because another one may be created under the name. A watch that ends, for example while the
// API server restarts, is started again with backoff.
//
// The wait has no deadline other than that of ctx. Its errors are
//
//   - *StalledError, at once, if the condition Stalled is True,
//   - *NotReadyError, if ctx ended,
//   - the error of the API server, if it refuses the list or the watch: the caller lacks a right, or Hawser's kinds are
//     not installed.
func WaitForReady(ctx context.Context, c client.WithWatch,
	key client.ObjectKey) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	w := &waiting{client: c, key: key, seen: &NotReadyError{Intent: key, Reason: ReasonUnknown,
		Message: "the API server has not answered yet"}}
	retry := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 20, Cap: longestRetry}
	for {
		intent, err := w.once(ctx)
		var stalled *StalledError
		switch {
		case intent != nil:
			return intent, nil
		case ctx.Err() != nil:
			w.seen.cause = context.Cause(ctx)
			return nil, w.seen
		case errors.As(err, &stalled), refused(err):
			return nil, err
		}
		if w.progressed {
			retry.Steps, retry.Duration = 20, firstRetry
		}
		timer := time.NewTimer(retry.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Delays between two watches, if one ended.
const (
	firstRetry   = 50 * time.Millisecond
	longestRetry = 10 * time.Second
)

// refused reports whether the API server will answer the same next time.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

// waiting is one call of WaitForReady.
type waiting struct {
	client client.WithWatch
	key    client.ObjectKey
	// seen is what to report if the wait ends now.
	seen *NotReadyError
	// progressed: the last watch has shown something.
	progressed bool
}

// once lists the intent and watches it until it is Ready or Stalled, or the watch ends.
func (w *waiting) once(ctx context.Context) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	w.progressed = false
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	only := []client.ListOption{client.InNamespace(w.key.Namespace), client.MatchingFields{"metadata.name": w.key.Name}}
	if err := w.client.List(ctx, list, only...); err != nil {
		return nil, w.failed(fmt.Errorf("listing VolumeAttachmentIntent %s: %w", w.key, err))
	}
	var intent *volumesv1alpha1.VolumeAttachmentIntent
	if len(list.Items) > 0 {
		intent = &list.Items[0]
	}
	switch done, err := w.judge(intent); {
	case err != nil:
		return nil, err
	case done:
		return intent, nil
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	changes, err := w.client.Watch(ctx, list, append(only, from)...)
	if err != nil {
		return nil, w.failed(fmt.Errorf("watching VolumeAttachmentIntent %s: %w", w.key, err))
	}
	defer changes.Stop()
	return w.follow(ctx, changes)
}

// failed notes an error that is worth another attempt, as what is known.
func (w *waiting) failed(err error) error {
	w.seen.Reason, w.seen.Message = ReasonUnknown, err.Error()
	return err
}

// follow returns the intent once it is Ready, and nil once the watch has ended.
func (w *waiting) follow(ctx context.Context, changes watch.Interface) (*volumesv1alpha1.VolumeAttachmentIntent,
	error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case change, open := <-changes.ResultChan():
			if !open {
				return nil, nil
			}
			intent, ok := change.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
			if !ok { // an error of the watch, such as a version that is too old
				return nil, apierrors.FromObject(change.Object)
			}
			switch w.progressed = true; change.Type {
			case watch.Bookmark:
				continue
			case watch.Deleted:
				intent = nil
			}
			switch done, err := w.judge(intent); {
			case err != nil:
				return nil, err
			case done:
				return intent, nil
			}
		}
	}
}

// judge reports whether the intent is Ready, and notes what it waits for. nil is an intent that does not exist.
func (w *waiting) judge(intent *volumesv1alpha1.VolumeAttachmentIntent) (ready bool, err error) {
	if intent == nil {
		w.seen.Reason, w.seen.Message = ReasonNotFound, "it does not exist"
		return false, nil
	}
	if intent.Status.ObservedGeneration != intent.Generation {
		w.seen.Reason, w.seen.Message = ReasonNotObserved, "no status has been written for its present spec"
		return false, nil
	}
	conditions := intent.Status.Conditions
	if s := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionStalled); s != nil &&
		s.Status == metav1.ConditionTrue {
		return false, &StalledError{Intent: w.key, Reason: s.Reason, Message: s.Message}
	}
	r := meta.FindStatusCondition(conditions, volumesv1alpha1.ConditionReady)
	switch {
	case r == nil:
		w.seen.Reason, w.seen.Message = ReasonNotObserved, "it has no condition Ready"
	case r.Status == metav1.ConditionTrue && r.ObservedGeneration == intent.Generation &&
		intent.DeletionTimestamp.IsZero():
		return true, nil
	case r.Status == metav1.ConditionTrue:
		w.seen.Reason = ReasonNotObserved
		w.seen.Message = "it is being deleted, or its condition Ready is older than its spec"
	default:
		w.seen.Reason, w.seen.Message = r.Reason, r.Message
	}
	return false, nil
}
