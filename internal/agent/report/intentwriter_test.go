/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/status"
)

func TestAnIntentThatAsksForSomethingElseByNowIsNotReportedOn(t *testing.T) {
	type intent = volumesv1alpha1.VolumeAttachmentIntent
	for name, c := range map[string]struct {
		meanwhile func(*intent)
		reported  bool
	}{
		"it has another label": {func(i *intent) { i.Labels = map[string]string{"app": "web"} }, true},
		"it was created again": {func(i *intent) { i.UID = "later" }, false},
		"its spec has changed": {func(i *intent) { i.Generation++ }, false},
		"it is being deleted":  {func(i *intent) { i.DeletionTimestamp = ptr.To(metav1.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			known := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i", UID: "earlier", Generation: 1,
				ResourceVersion: "1", Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}}}
			now := known.DeepCopy()
			now.ResourceVersion = "2"
			c.meanwhile(now)
			api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithStatusSubresource(known).
				WithObjects(now).Build()
			w := NewIntentWriter(controllertest.Strict(t, api), clocktesting.NewFakeClock(time.Unix(1000, 0)), func(string) {})
			s := IntentReport{Ready: true, staged: &ConditionValue{OK: true, reason: volumesv1alpha1.ReasonStaged}}
			if err := w.Update(t.Context(), known, s); err != nil {
				t.Errorf("reporting on an intent of an earlier version: error %v, want none", err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				t.Fatal(err)
			}
			if reported := status.AgentConditionsPresent(now); reported != c.reported {
				t.Errorf("conditions of the intent: %v, want some: %t", now.Status.Conditions, c.reported)
			}
		})
	}
}
