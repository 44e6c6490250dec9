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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// WaitForReady blocks until the intent has reached its desired state for its present spec, and returns it. For an
// intent with the desired state Published, status.path of the result is where its volume is on the node.
//
// The intent may not exist yet: the wait continues until it does. It also continues if the intent is deleted, because
// another one may be created under the name. A watch that ends, for example while the API server restarts, is started
// again with backoff.
//
// Its errors are
//
//   - *Error with Stalled, at once, if the condition Stalled is True,
//   - *Error with what the intent waits for, if ctx ended. errors.Is finds the cause of the context in it,
//   - the error of the API server, if it refuses the list or the watch: the caller lacks a right, or Hawser's kinds are
//     not installed.
func (c *Client) WaitForReady(ctx context.Context,
	key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	return c.wait(ctx, key, judgeReady)
}

// Delays between two watches, if one ended.
const (
	firstRetry   = 50 * time.Millisecond
	longestRetry = 10 * time.Second
)

// judge decides on an intent as it is now; nil is one that does not exist. Without done, why is what it waits for.
// With done and without why, the wait has succeeded.
type judge func(intent *volumesv1alpha1.VolumeAttachmentIntent) (done bool, why *Error)

// judgeReady is done with an intent that is Ready or Stalled for its present spec.
func judgeReady(intent *volumesv1alpha1.VolumeAttachmentIntent) (done bool, why *Error) {
	if intent == nil {
		return false, &Error{Reason: ReasonNotFound, Message: "it does not exist"}
	}
	r := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	why = explain(intent)
	switch {
	case why.Stalled():
		return true, why
	case r != nil && r.Status == metav1.ConditionTrue && r.ObservedGeneration == intent.Generation &&
		intent.Status.ObservedGeneration == intent.Generation && intent.DeletionTimestamp.IsZero():
		return true, nil
	}
	return false, why
}

// wait lists and watches the intent until the judge is done, and returns it as it is then.
func (c *Client) wait(ctx context.Context, key types.NamespacedName,
	judge judge) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	w := &waiting{client: c.Intents(key.Namespace), key: key, judge: judge,
		seen: &Error{Reason: ReasonUnknown, Message: "the API server has not answered yet"}}
	retry := backoff()
	for {
		done, err := w.once(ctx)
		var about *Error
		switch {
		case done:
			return w.intent, nil
		case errors.As(err, &about), refused(err):
			return nil, err
		case ctx.Err() != nil:
			w.seen.Intent, w.seen.cause = key, context.Cause(ctx)
			return nil, w.seen
		}
		if w.progressed {
			retry = backoff()
		}
		timer := time.NewTimer(retry.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func backoff() wait.Backoff {
	return wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 20, Cap: longestRetry}
}

// refused reports whether the API server will answer the same next time.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// waiting is one wait.
type waiting struct {
	client *Intents
	key    types.NamespacedName
	judge  judge
	// intent as it was when the judge was done.
	intent *volumesv1alpha1.VolumeAttachmentIntent
	// seen is what to report if the wait ends now.
	seen *Error
	// progressed: the last watch has shown something.
	progressed bool
}

// once lists the intent and watches it until the judge is done, or the watch ends.
func (w *waiting) once(ctx context.Context) (done bool, err error) {
	w.progressed = false
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", w.key.Name).String()}
	list, err := w.client.List(ctx, only)
	if err != nil {
		return false, w.failed(fmt.Errorf("listing VolumeAttachmentIntent %s: %w", w.key, err))
	}
	var intent *volumesv1alpha1.VolumeAttachmentIntent
	if len(list.Items) > 0 {
		intent = &list.Items[0]
	}
	if done, err := w.decide(intent); done || err != nil {
		return done, err
	}
	only.ResourceVersion = list.ResourceVersion
	changes, err := w.client.Watch(ctx, only)
	if err != nil {
		return false, w.failed(fmt.Errorf("watching VolumeAttachmentIntent %s: %w", w.key, err))
	}
	defer changes.Stop()
	return w.follow(ctx, changes)
}

// failed notes an error that is worth another attempt, as what is known.
func (w *waiting) failed(err error) error {
	w.seen = &Error{Reason: ReasonUnknown, Message: err.Error()}
	return err
}

// follow returns once the judge is done, or the watch has ended.
func (w *waiting) follow(ctx context.Context, changes watch.Interface) (done bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case change, open := <-changes.ResultChan():
			if !open {
				return false, nil
			}
			intent, ok := change.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
			if !ok { // an error of the watch, such as a version that is too old
				return false, apierrors.FromObject(change.Object)
			}
			switch w.progressed = true; change.Type {
			case watch.Bookmark:
				continue
			case watch.Deleted:
				intent = nil
			}
			if done, err := w.decide(intent); done || err != nil {
				return done, err
			}
		}
	}
}

// decide asks the judge and notes what the intent waits for.
func (w *waiting) decide(intent *volumesv1alpha1.VolumeAttachmentIntent) (done bool, err error) {
	done, why := w.judge(intent)
	switch {
	case why == nil:
		w.intent = intent
		return done, nil
	case done:
		why.Intent = w.key
		return false, why
	}
	w.seen = why
	return false, nil
}
