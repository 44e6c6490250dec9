/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

type outcome struct {
	intent *volumesv1alpha1.VolumeAttachmentIntent
	err    error
}

// waitFor begins to wait for the intent. watches receives each watch of the wait once it has begun.
func waitFor(ctx context.Context, t *testing.T, c client.WithWatch, name string) (watches <-chan watch.Interface,
	ended <-chan outcome) {
	t.Helper()
	begun, result := make(chan watch.Interface, 10), make(chan outcome, 1)
	watched := interceptor.NewClient(c, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
		w, err := c.Watch(ctx, list, options...)
		if err == nil {
			begun <- w
		}
		return w, err
	}})
	go func() {
		intent, err := volumes.WaitForReady(ctx, watched, client.ObjectKey{Namespace: namespace, Name: name})
		result <- outcome{intent, err}
	}()
	return begun, result
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-limited(t).Done():
		t.Fatalf("%s did not come within a minute", what)
		panic("not reached")
	}
}

// notEnded fails if the wait has ended.
func notEnded(t *testing.T, ended <-chan outcome, while string) {
	t.Helper()
	select {
	case o := <-ended:
		t.Fatalf("the wait ended with the intent %v and the error %v while %s, want it to continue", o.intent, o.err, while)
	default:
	}
}

func TestAWaitForAnIntentThatDoesNotExistYetEndsWhenItIsReady(t *testing.T) {
	_, c := apiserver.Borrow(t)
	watches, ended := waitFor(limited(t), t, c, "late")
	receive(t, watches, "the watch")
	i := newIntent("late", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, "NotPublished", "the agent is staging it")
	notEnded(t, ended, "the intent was not Ready")
	i.Status.Path = "/var/lib/hawser/published/default/late"
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	o := receive(t, ended, "the end of the wait")
	if o.err != nil || o.intent == nil || o.intent.Status.Path != i.Status.Path {
		t.Errorf("the wait ended with the intent %v and the error %v, want the intent with path %s", o.intent, o.err,
			i.Status.Path)
	}
}

func TestAWaitForAnIntentThatIsReadyEndsWithoutAWatch(t *testing.T) {
	_, c := apiserver.Borrow(t)
	i := newIntent("ready", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	watches, ended := waitFor(limited(t), t, c, "ready")
	if o := receive(t, ended, "the end of the wait"); o.err != nil || o.intent.UID != i.UID {
		t.Errorf("the wait ended with the intent %v and the error %v, want intent %s", o.intent, o.err, i.UID)
	}
	if n := len(watches); n > 0 {
		t.Errorf("the wait began %d watches, want none: the intent was Ready", n)
	}
}

func TestAWaitEndsAtOnceIfTheIntentIsStalled(t *testing.T) {
	_, c := apiserver.Borrow(t)
	i := newIntent("stalled", "data")
	create(t, c, i)
	watches, ended := waitFor(limited(t), t, c, "stalled")
	receive(t, watches, "the watch")
	observe(t, c, i, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, "VolumeModeMismatch", "the claim is Block")
	o := receive(t, ended, "the end of the wait")
	var stalled *volumes.StalledError
	if !errors.As(o.err, &stalled) || stalled.Reason != "VolumeModeMismatch" || stalled.Message != "the claim is Block" {
		t.Errorf("error %v, want a StalledError with reason VolumeModeMismatch and message %q", o.err, "the claim is Block")
	}
}

func TestAWaitDoesNotAcceptThatAnEarlierSpecWasReady(t *testing.T) {
	_, c := apiserver.Borrow(t)
	i := newIntent("changed", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	i.Spec.ReadOnly = true
	if err := c.Update(limited(t), i); err != nil {
		t.Fatal(err)
	}
	watches, ended := waitFor(limited(t), t, c, "changed")
	receive(t, watches, "the watch")
	notEnded(t, ended, "the status was that of an earlier spec")
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	if o := receive(t, ended, "the end of the wait"); o.err != nil || !o.intent.Spec.ReadOnly {
		t.Errorf("the wait ended with the intent %v and the error %v, want the read-only intent", o.intent, o.err)
	}
}

func TestAWaitContinuesAfterItsWatchHasEnded(t *testing.T) {
	_, c := apiserver.Borrow(t)
	watches, ended := waitFor(limited(t), t, c, "interrupted")
	receive(t, watches, "the first watch").Stop()
	receive(t, watches, "the second watch")
	i := newIntent("interrupted", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	if o := receive(t, ended, "the end of the wait"); o.err != nil {
		t.Errorf("the wait ended with the error %v, want the intent", o.err)
	}
}

func TestTheErrorOfAWaitNamesWhatTheIntentWaitsFor(t *testing.T) {
	_, c := apiserver.Borrow(t)
	waiting := newIntent("waiting", "data")
	create(t, c, waiting)
	observe(t, c, waiting, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, "VolumeInUseElsewhere",
		"held by node node-b")
	create(t, c, newIntent("fresh", "data"))
	for name, want := range map[string]volumes.NotReadyError{
		"waiting": {Reason: "VolumeInUseElsewhere", Message: "held by node node-b"},
		"fresh":   {Reason: volumes.ReasonNotObserved, Message: "no status has been written for its present spec"},
		"missing": {Reason: volumes.ReasonNotFound, Message: "it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, context.DeadlineExceeded)
			defer cancel()
			watches, ended := waitFor(ctx, t, c, name)
			receive(t, watches, "the watch")
			cancel()
			o := receive(t, ended, "the end of the wait")
			var got *volumes.NotReadyError
			if !errors.As(o.err, &got) || !errors.Is(o.err, context.Canceled) {
				t.Fatalf("error %v, want a NotReadyError that is context.Canceled", o.err)
			}
			if got.Reason != want.Reason || got.Message != want.Message || !strings.Contains(got.Error(), want.Reason) {
				t.Errorf("error %q of intent %s has reason %q and message %q, want %q and %q", got, name, got.Reason,
					got.Message, want.Reason, want.Message)
			}
		})
	}
}

func TestAWaitEndsIfItsCallerMayNotRead(t *testing.T) {
	config, _ := apiserver.Borrow(t)
	stranger := rest.CopyConfig(config)
	stranger.Impersonate.UserName = "stranger"
	c, err := client.NewWithWatch(stranger, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	_, ended := waitFor(limited(t), t, c, "data")
	if o := receive(t, ended, "the end of the wait"); !apierrors.IsForbidden(o.err) {
		t.Errorf("the wait of a user without rights ended with the error %v, want Forbidden", o.err)
	}
}
