/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

type outcome struct {
	intent *volumesv1alpha1.VolumeAttachmentIntent
	err    error
}

// watching is a transport that reports the body of each watch once it has begun.
type watching struct {
	next  http.RoundTripper
	begun chan<- io.Closer
}

func (w watching) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		w.begun <- response.Body
	}
	return response, err
}

// begin begins a call that waits. watches receives each watch of the call once it has begun. Closing it ends the watch.
func begin(t *testing.T, config *rest.Config,
	call func(c *volumes.Client) (*volumesv1alpha1.VolumeAttachmentIntent, error)) (watches <-chan io.Closer,
	ended <-chan outcome) {
	t.Helper()
	begun, result := make(chan io.Closer, 10), make(chan outcome, 1)
	watched := rest.CopyConfig(config)
	watched.Wrap(func(next http.RoundTripper) http.RoundTripper { return watching{next, begun} })
	c := newClient(t, watched)
	go func() {
		intent, err := call(c)
		result <- outcome{intent, err}
	}()
	return begun, result
}

// waitFor begins to wait for the intent.
func waitFor(ctx context.Context, t *testing.T, config *rest.Config, name string) (<-chan io.Closer, <-chan outcome) {
	t.Helper()
	return begin(t, config, func(c *volumes.Client) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
		return c.WaitForReady(ctx, keyOf(name))
	})
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
	config, c := apiserver.Borrow(t)
	watches, ended := waitFor(limited(t), t, config, "late")
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
	config, c := apiserver.Borrow(t)
	i := newIntent("ready", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	watches, ended := waitFor(limited(t), t, config, "ready")
	if o := receive(t, ended, "the end of the wait"); o.err != nil || o.intent.UID != i.UID {
		t.Errorf("the wait ended with the intent %v and the error %v, want intent %s", o.intent, o.err, i.UID)
	}
	if n := len(watches); n > 0 {
		t.Errorf("the wait began %d watches, want none: the intent was Ready", n)
	}
}

func TestAWaitEndsAtOnceIfTheIntentIsStalled(t *testing.T) {
	config, c := apiserver.Borrow(t)
	i := newIntent("stalled", "data")
	create(t, c, i)
	watches, ended := waitFor(limited(t), t, config, "stalled")
	receive(t, watches, "the watch")
	observe(t, c, i, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, "VolumeModeMismatch", "the claim is Block")
	o := receive(t, ended, "the end of the wait")
	var stalled *volumes.Error
	if !errors.As(o.err, &stalled) || !stalled.Stalled() || stalled.Message != "the claim is Block" ||
		volumes.ReasonOf(o.err) != volumesv1alpha1.ReasonVolumeModeMismatch || stalled.Intent != keyOf("stalled") {
		t.Errorf("error %v, want that the intent is stalled for VolumeModeMismatch, with the message %q", o.err,
			"the claim is Block")
	}
}

func TestAWaitDoesNotAcceptThatAnEarlierSpecWasReady(t *testing.T) {
	config, c := apiserver.Borrow(t)
	i := newIntent("changed", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	i.Spec.ReadOnly = true
	if err := c.Update(limited(t), i); err != nil {
		t.Fatal(err)
	}
	watches, ended := waitFor(limited(t), t, config, "changed")
	receive(t, watches, "the watch")
	notEnded(t, ended, "the status was that of an earlier spec")
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	if o := receive(t, ended, "the end of the wait"); o.err != nil || !o.intent.Spec.ReadOnly {
		t.Errorf("the wait ended with the intent %v and the error %v, want the read-only intent", o.intent, o.err)
	}
}

func TestAWaitContinuesAfterItsWatchHasEnded(t *testing.T) {
	config, c := apiserver.Borrow(t)
	watches, ended := waitFor(limited(t), t, config, "interrupted")
	if err := receive(t, watches, "the first watch").Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, watches, "the second watch")
	i := newIntent("interrupted", "data")
	create(t, c, i)
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	if o := receive(t, ended, "the end of the wait"); o.err != nil {
		t.Errorf("the wait ended with the error %v, want the intent", o.err)
	}
}

func TestTheErrorOfAWaitNamesWhatTheIntentWaitsFor(t *testing.T) {
	config, c := apiserver.Borrow(t)
	waiting := newIntent("waiting", "data")
	create(t, c, waiting)
	observe(t, c, waiting, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, "VolumeInUseElsewhere",
		"held by node node-b")
	create(t, c, newIntent("fresh", "data"))
	for name, want := range map[string]volumes.Error{
		"waiting": {Condition: volumesv1alpha1.ConditionReady, Reason: volumesv1alpha1.ReasonVolumeInUse,
			Message: "held by node node-b"},
		"fresh":   {Reason: volumes.ReasonNotObserved, Message: "no status has been written for its present spec"},
		"missing": {Reason: volumes.ReasonNotFound, Message: "it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, context.DeadlineExceeded)
			defer cancel()
			watches, ended := waitFor(ctx, t, config, name)
			receive(t, watches, "the watch")
			cancel()
			o := receive(t, ended, "the end of the wait")
			var got *volumes.Error
			if !errors.As(o.err, &got) || !errors.Is(o.err, context.Canceled) {
				t.Fatalf("error %v, want an Error that is context.Canceled", o.err)
			}
			want.Intent = keyOf(name)
			if diff := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(volumes.Error{})); diff != "" ||
				!strings.Contains(got.Error(), string(want.Reason)) {
				t.Errorf("error %q differs (-want +got):\n%s", got, diff)
			}
		})
	}
}

func TestAWaitEndsIfItsCallerMayNotRead(t *testing.T) {
	config, _ := apiserver.Borrow(t)
	stranger := rest.CopyConfig(config)
	stranger.Impersonate.UserName = "stranger"
	_, ended := waitFor(limited(t), t, stranger, "data")
	if o := receive(t, ended, "the end of the wait"); !apierrors.IsForbidden(o.err) {
		t.Errorf("the wait of a user without rights ended with the error %v, want Forbidden", o.err)
	}
}
