/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"errors"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

// deleting begins to delete the intent.
func deleting(ctx context.Context, t *testing.T, config *rest.Config, name string) (<-chan io.Closer, <-chan outcome) {
	t.Helper()
	return begin(t, config, func(c *volumes.Client) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
		return nil, c.DeleteAndWait(ctx, keyOf(name))
	})
}

// inUse creates an intent that its node has to release.
func inUse(t *testing.T, c client.Client, name string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	i := newIntent(name, "data")
	i.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	create(t, c, i)
	return i
}

// released removes the finalizer, as the agent does once the node has released the volume.
func released(t *testing.T, c client.Client, i *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(limited(t), i, patch); err != nil {
		t.Fatalf("removing the finalizer of intent %s: %v", i.Name, err)
	}
}

func TestADeletionEndsWhenTheNodeHasReleasedTheVolume(t *testing.T) {
	config, c := apiserver.Borrow(t)
	i := inUse(t, c, "leaving")
	watches, ended := deleting(limited(t), t, config, i.Name)
	receive(t, watches, "the first watch")
	notEnded(t, ended, "the volume was in use")
	again, endedToo := deleting(limited(t), t, config, i.Name)
	receive(t, again, "the watch of the second deletion")
	released(t, c, i)
	for _, result := range []<-chan outcome{ended, endedToo} {
		if o := receive(t, result, "the end of the deletion"); o.err != nil {
			t.Errorf("the deletion ended with the error %v, want none", o.err)
		}
	}
}

func TestADeletionOfWhatDoesNotExistSucceeds(t *testing.T) {
	config, c := apiserver.Borrow(t)
	watches, ended := deleting(limited(t), t, config, "missing")
	if o := receive(t, ended, "the end of the deletion"); o.err != nil {
		t.Errorf("deleting an intent that does not exist: %v, want success", o.err)
	}
	create(t, c, newIntent("unused", "data"))
	if err := newClient(t, config).DeleteAndWait(limited(t), keyOf("unused")); err != nil {
		t.Errorf("deleting an intent that nothing holds: %v, want success", err)
	}
	if n := len(watches); n > 0 {
		t.Errorf("the deletion began %d watches, want none", n)
	}
}

func TestADeletionLeavesALaterIntentOfTheSameName(t *testing.T) {
	config, c := apiserver.Borrow(t)
	i := inUse(t, c, "renewed")
	watches, ended := deleting(limited(t), t, config, i.Name)
	// What it missed while its watch was interrupted: the intent is gone, and there is another one.
	first := receive(t, watches, "the first watch")
	released(t, c, i)
	later := inUse(t, c, "renewed")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if o := receive(t, ended, "the end of the deletion"); o.err != nil {
		t.Errorf("the deletion ended with the error %v, want none", o.err)
	}
	if err := c.Get(limited(t), keyOf("renewed"), later); err != nil || !later.DeletionTimestamp.IsZero() {
		t.Errorf("the later intent: %v, deleted at %v; want that it stays", err, later.DeletionTimestamp)
	}
}

func TestTheErrorOfADeletionNamesWhatTheReleaseWaitsFor(t *testing.T) {
	config, c := apiserver.Borrow(t)
	i := inUse(t, c, "used")
	if err := c.Delete(limited(t), i); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(limited(t), keyOf(i.Name), i); err != nil {
		t.Fatal(err)
	}
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonReleasing,
		"being deleted")
	observe(t, c, i, volumesv1alpha1.ConditionPublished, metav1.ConditionFalse, volumesv1alpha1.ReasonUsedByPods,
		"used by pod shop/web")
	ctx, cancel := context.WithCancelCause(t.Context())
	watches, ended := deleting(ctx, t, config, i.Name)
	receive(t, watches, "the watch")
	cause := errors.New("the caller has waited enough")
	cancel(cause)
	o := receive(t, ended, "the end of the deletion")
	var got *volumes.Error
	if !errors.As(o.err, &got) || !errors.Is(o.err, cause) || got.Condition != volumesv1alpha1.ConditionPublished ||
		got.Reason != volumesv1alpha1.ReasonUsedByPods || got.Message != "used by pod shop/web" || got.Stalled() {
		t.Errorf("error %v, want %s of condition Published, and the cause", o.err, volumesv1alpha1.ReasonUsedByPods)
	}
}
