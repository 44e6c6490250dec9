/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/status"
)

func newNaming(api client.Client, clock *clocktesting.FakeClock) *Controller {
	return &Controller{Client: api, Named: flowcontrol.NewFakeBackOff(status.FirstBackoff, status.LongestBackoff, clock)}
}

func TestANodeThatAnotherConsumerNamedMeanwhileStaysWithTheClaim(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}
	api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(claim).Build()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ours"}}
	facts := resolve.Facts{Claim: &corev1.PersistentVolumeClaim{}, Node: node}
	key := client.ObjectKeyFromObject(claim)
	now := &corev1.PersistentVolumeClaim{}
	if err := errors.Join(api.Get(t.Context(), key, facts.Claim), api.Get(t.Context(), key, now)); err != nil {
		t.Fatal(err)
	}
	now.Annotations = map[string]string{cached.SelectedNodeAnnotation: "theirs"}
	if err := api.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	_, err := newNaming(api, clocktesting.NewFakeClock(time.Now())).selectNode(t.Context(), facts,
		&resolve.Result{SelectNode: true})
	if err != nil {
		t.Errorf("naming a node to a claim that has one by now: error %v, want none: its event is on the way", err)
	}
	if err := api.Get(t.Context(), key, now); err != nil || now.Annotations[cached.SelectedNodeAnnotation] != "theirs" {
		t.Errorf("annotations of claim c: %v, error %v; want the node that was named first", now.Annotations, err)
	}
}

// A provisioner that cannot make the volume on the node removes the name: for the scheduler, which chooses another.
func TestANodeThatAProvisionerGivesBackIsNamedAgainAfterAWaitThatDoubles(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u"}}
	api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(claim).Build()
	clock := clocktesting.NewFakeClock(time.Now())
	c := newNaming(api, clock)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	named := 0
	var last resolve.Result
	// reconcile returns the wait. The provisioner gives the node back at once.
	reconcile := func() time.Duration {
		t.Helper()
		now := &corev1.PersistentVolumeClaim{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), now); err != nil {
			t.Fatal(err)
		}
		last = resolve.Result{SelectNode: true, Message: "its volume is awaited"}
		again, err := c.selectNode(t.Context(), resolve.Facts{Claim: now, Node: node}, &last)
		if err == nil {
			err = api.Get(t.Context(), client.ObjectKeyFromObject(claim), now)
		}
		if err == nil && now.Annotations[cached.SelectedNodeAnnotation] != "" {
			named, now.Annotations = named+1, nil
			err = api.Update(t.Context(), now)
		}
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	reconcile()
	if again := reconcile(); again != status.FirstBackoff || named != 1 || last.Message != "its volume is awaited" {
		t.Errorf("a node that was given back once: named %d times, again after %s, with the message %q; want once, after "+
			"%s, and that of before", named, again, last.Message, status.FirstBackoff)
	}
	for k, want := 2, 2*status.FirstBackoff; want < status.LongestBackoff; k, want = k+1, 2*want {
		clock.Step(c.Named.Get("u"))
		if again := reconcile(); again != 0 || named != k {
			t.Fatalf("after the wait: named %d times, again after %s, want %d times and no wait", named, again, k)
		}
		if again := reconcile(); again != want || named != k || !strings.Contains(last.Message, "full") ||
			!strings.Contains(last.Message, "events") {
			t.Errorf("given back %d times: named %d times, again after %s, with the message %q; want a wait of %s, and the "+
				"node and where the cause is", k, named, again, last.Message, want)
		}
	}
	other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "o"}}
	if err := api.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	again, err := c.selectNode(t.Context(), resolve.Facts{Claim: other, Node: node}, &last)
	if err != nil || again != 0 {
		t.Errorf("another claim waits %s for the node, error %v, want no wait", again, err)
	}
}
