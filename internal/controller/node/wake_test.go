/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hawser-io/hawser/internal/controller/liveness"
)

func TestAnAttachmentEnqueuesItsNodeOnlyIfTheNodeIsGoneOrItsAgentOverdue(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	heard := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "heard"}}
	overdue := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overdue"}}
	now := testingclock.NewFakePassiveClock(time.Now())
	c := &Controller{
		Client:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(heard, overdue).Build(),
		Tracker: liveness.NewTracker(now),
	}
	c.Tracker.Observe("overdue", &coordinationv1.Lease{})
	now.SetTime(now.Now().Add(liveness.DefaultDuration))
	c.Tracker.Observe("heard", &coordinationv1.Lease{})
	for node, want := range map[string]int{"heard": 0, "overdue": 1, "gone": 1} {
		got := c.ofAttachment(t.Context(), &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node}})
		if len(got) != want || want > 0 && got[0].Name != node {
			t.Errorf("nodes that an attachment to node %q wakes: %v, want %d", node, got, want)
		}
	}
}
